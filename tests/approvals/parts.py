"""What the tests of approvals share: a tool that pays, a State that waits, and rows that were tampered with."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from typing import Any

from alpineagents import Agent, State, Store, ToolCall, tool
from alpineagents.testing import FakeModel
from tests.agent.processes import SECONDS, started
from tests.contract.backends import Backend, change_row, rows_of

PROGRAM = "../../approvals/programs/process.py"


class Till:
    """
    Where is paid.

    Attributes:
        paid: the amounts, in order.
    """

    def __init__(self) -> None:
        self.paid: list[int] = []

        @tool(needs_approval=True)
        async def pay(amount: int) -> str:
            """Pay an amount."""
            self.paid.append(amount)
            return f"paid {amount}"

        self.pay = pay

    def agent(self, store: Store, *replies: Any, **settings: Any) -> Agent:
        """Return an Agent that can pay."""
        tools = settings.pop("tools", [self.pay])
        return Agent(FakeModel(list(replies or ("All done.",))), tools=tools, store=store, **settings)

    async def waiting(self, store: Store, *calls: ToolCall, id: str = "s", **settings: Any) -> State:
        """Return a State whose calls wait, as another process loads it."""
        assert await self.agent(store, list(calls), **settings).run("Pay", id=id) is None
        return await store.load(id)


async def tamper(store: Store, id: str, kind: str, change: Callable[[dict[str, Any]], object]) -> None:
    """Change the payload of the last Event of a kind behind the library's back."""
    history = (await store.load(id)).history
    revision = max(event.revision for event in history if event.kind == kind)
    payload = json.loads({row[0]: row[2] for row in await rows_of(store, id)}[revision])
    change(payload)
    await change_row(store, id, revision, payload=json.dumps(payload, separators=(",", ":")))


def at_once(backend: Backend, commands: Sequence[Sequence[str]]) -> list[str]:
    """Let processes do one thing each, all at the same moment; return what each came to."""
    assert backend.url is not None
    with ExitStack() as stack:
        kind = "files" if backend.name == "files" else "sql"
        processes = [stack.enter_context(started(PROGRAM, kind, backend.url, *command)) for command in commands]
        for process in processes:
            assert process.stdout is not None
            assert process.stdout.readline() == "ready\n", process.communicate()
        for process in processes:
            assert process.stdin is not None
            process.stdin.write("go\n")
            process.stdin.flush()
        return [process.communicate(timeout=SECONDS)[0].strip() for process in processes]
