"""
One of many processes that use the same States: `python worker.py KIND TARGET FOLDER SEED SECONDS STATES`.

It runs, resumes, posts, cancels, approves and denies at random, and now and then it dies by SIGKILL. What was
acknowledged to it is written to its log at once, so that a checker can ask for all of it afterwards.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import signal
import sys
import time
from pathlib import Path

import anyio

from alpineagents import (
    Agent,
    ApprovalError,
    Delta,
    FileStore,
    Message,
    Request,
    SQLStore,
    State,
    StateBusyError,
    StateConflictError,
    StateExistsError,
    StateNotFoundError,
    Store,
    ToolContext,
    tool,
)
from alpineagents.runner import Item
from alpineagents.testing import FakeModel, tool_call

EXPECTED = (ApprovalError, StateBusyError, StateConflictError, StateExistsError, StateNotFoundError)


class Worker:
    def __init__(self, store: Store, folder: Path, seed: int, states: int) -> None:
        self.random = random.Random(seed)
        self.store, self.states, self.posts, self.seed = store, states, 0, seed
        self.log = os.open(folder / f"{seed}.jsonl", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        self.agent = Agent(
            FakeModel(self.reply),
            tools=[self.tool_note(), self.tool_look(), self.tool_ask()],
            store=store,
            lease=0.5,
            on_unknown="report",
        )

    def say(self, what: str, **fields: object) -> None:
        """One write, so that a kill leaves whole lines."""
        os.write(self.log, (json.dumps({"what": what, **fields}) + "\n").encode())

    def maybe_die(self, chance: float) -> None:
        if self.random.random() < chance:
            os.kill(os.getpid(), signal.SIGKILL)

    def tool_note(self) -> object:
        @tool
        async def note(text: str, context: ToolContext) -> str:
            """Write something down; doing it twice would be two notes."""
            self.say("note", state=context.state_id, call=context.call_id)
            self.maybe_die(0.01)
            await anyio.sleep(self.random.random() * 0.01)
            return text

        return note

    def tool_look(self) -> object:
        @tool(read_only=True)
        def look(text: str) -> str:
            """Look something up."""
            self.maybe_die(0.01)
            return text

        return look

    def tool_ask(self) -> object:
        @tool(needs_approval=True)
        async def ask(text: str, context: ToolContext) -> str:
            """Do what a person must allow."""
            self.say("note", state=context.state_id, call=context.call_id)
            return text

        return ask

    def reply(self, request: Request) -> object:
        self.maybe_die(0.003)
        if request.messages[-1].tool_results or self.random.random() < 0.3:
            return "Well."
        names = self.random.choices(["note", "look", "ask"], weights=[5, 5, 1], k=self.random.randint(1, 3))
        return [tool_call(name, text=f"{self.random.random()}") for name in names]

    async def run_one(self, id: str) -> None:
        async def saved(item: Item) -> None:
            if not isinstance(item, Delta):
                self.say("saved", state=id, revision=item.revision, kind=item.kind)
                self.maybe_die(0.002)

        agent = self.agent.copy(reporter=saved)
        if await self.store.exists(id):
            await agent.resume(id, f"more of {self.random.random()}" if self.random.random() < 0.7 else None)
        else:
            await agent.run(State(id=id, messages=[Message.user("Begin")]))

    async def post(self, id: str) -> None:
        self.posts += 1
        text = f"post {self.seed} {os.getpid()} {self.posts}"
        await self.store.post(id, Message.user(text))
        self.say("posted", state=id, text=text)

    async def decide(self, id: str) -> None:
        state = await self.store.load(id)
        for call in state.snapshot().calls.values():
            if call.approval == "requested":
                if self.random.random() < 0.7:
                    await self.store.approve(id, call.call.id, by="someone")
                else:
                    await self.store.deny(id, call.call.id, by="someone", reason="no")

    async def step(self) -> None:
        state_id = f"s{self.random.randrange(self.states)}"
        work = self.random.choices([self.run_one, self.post, self.decide, self.store.cancel], weights=[6, 3, 3, 1])[0]
        try:
            if self.random.random() < 0.05:
                with anyio.move_on_after(self.random.random() * 0.02):
                    await work(state_id)
            else:
                await work(state_id)
        except EXPECTED:
            pass


async def main() -> None:
    kind, target, folder, seed, seconds, states = sys.argv[1:]
    store: Store = FileStore(target) if kind == "files" else SQLStore(target)
    ends = time.monotonic() + float(seconds)
    async with store:
        worker = Worker(store, Path(folder), int(seed), int(states))
        while time.monotonic() < ends:
            await asyncio.gather(*(worker.step() for _ in range(4)))


if __name__ == "__main__":
    asyncio.run(main())
