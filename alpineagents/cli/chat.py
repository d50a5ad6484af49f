"""
`alpineagents chat`: a prompt, an answer as it comes, and again.

Answers go to stdout, all else to stderr. All turns run on one event loop in the main thread: there Ctrl+C cancels the
turn, which records that and comes to its end, and only then the prompt is back.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
from typing import Any

from alpineagents.agent import Agent
from alpineagents.cli.named import named_agent
from alpineagents.cli.states import open_store, shown_store
from alpineagents.cli.terminal import ERR, OUT, fail, say, write
from alpineagents.errors import AlpineAgentsError, ConfigError, StateError
from alpineagents.messages import Message
from alpineagents.state import State
from alpineagents.stores import Store
from alpineagents.terminal import Terminal
from alpineagents.terminal.text import clean

INTERRUPTED = 130
STORE = "chat.db"
MODEL = "claude-sonnet-5"


def chat(
    target: str | None, *, agent: str | None, model: str | None, system: str | None, resume: bool, state_id: str | None
) -> int:
    """
    Talk until the person leaves.

    Args:
        target: where States are kept; None for where the Agent keeps them, else `chat.db`.
        agent: names an Agent of the person's own, as `module:name`.
        model, system: instead of the Agent's own.

    Returns:
        The exit code. With a piped input, 1 if the last turn failed.

    Raises:
        AlpineAgentsError: there is no key, no such model or Agent, no store or no State to go on with.
    """
    terminal = Terminal(quiet=False)
    changes: dict[str, Any] = {
        name: value for name, value in (("model", model), ("system", system)) if value is not None
    }
    talker = Agent(**{"model": MODEL, **changes}) if agent is None else named_agent(agent).copy(**changes)
    where = target or (STORE if talker.store is None else None)
    store = talker.store if where is None else open_store(where, must_exist=resume)
    assert store is not None
    talker = talker.copy(store=store, reporter=terminal, human=terminal if terminal.at_hand else None)
    shown = type(store).__name__ if where is None else shown_store(where)
    with asyncio.Runner() as runner:
        try:
            state = runner.run(_begin(store, shown, resume=resume, state_id=state_id))
            talk = Chat(talker, store, state, runner, terminal)
            talk.greet(shown, resumed=resume)
            return talk.talk()
        finally:
            runner.run(_close(talker, store))


async def _begin(store: Store, where: str, *, resume: bool, state_id: str | None) -> State:
    # Opens the database too, so that what is wrong with it is said before the person has written something.
    newest = await store.list(limit=1)
    if not resume:
        return State(namespace=store.namespace)
    if state_id is None:
        if not newest:
            raise ConfigError(f"there is no State in {where} to go on with: alpineagents chat --store {where}")
        state_id = newest[0].id
    return await store.load(state_id)


async def _close(agent: Agent[Any], store: Store) -> None:
    await agent.aclose()
    await store.aclose()


class Chat:
    """
    One person's talk with one Agent.

    Args:
        runner: the event loop that all turns run on.
        terminal: shows the turns.
    """

    def __init__(
        self, agent: Agent[Any], store: Store, state: State, runner: asyncio.Runner, terminal: Terminal
    ) -> None:
        self._agent, self._store, self._state, self._runner = agent, store, state, runner
        self._terminal = terminal
        self._at_keyboard = sys.stdin is not None and sys.stdin.isatty()
        self._failed = False
        self._turn_goes_on = False
        if self._at_keyboard:
            with contextlib.suppress(ImportError):
                import readline  # noqa: F401  # gives `input` its editing and its history

    def greet(self, where: str, *, resumed: bool) -> None:
        """Say what this is, and what was said last where a State goes on."""
        if not self._at_keyboard:
            return
        _hint(f"{self._agent.model.name} · {where} · State {self._state.id} · Ctrl+C stops, Ctrl+D leaves")
        if resumed and isinstance(self._state.answer, str):
            write(clean(self._state.answer))
        elif resumed and self._state.status not in ("ready", "running"):
            self._offer_another_try()

    def talk(self) -> int:
        """Ask for a message and answer it, until the person leaves; return the exit code."""
        if self._owes_answer() and self._state.status in ("ready", "running"):
            _hint("going on where it stopped …")
            if (code := self._take_turn()) is not None:
                return code
        while True:
            try:
                text = self._read()
            except EOFError:
                say("") if self._at_keyboard else None
                return int(self._failed and not self._at_keyboard)
            except KeyboardInterrupt:
                say("")
                return 0 if self._at_keyboard else INTERRUPTED
            if text.strip():
                self._add(Message.user(text.rstrip("\n")))
            elif not self._owes_answer():
                continue
            if (code := self._take_turn()) is not None:
                return code

    def _read(self) -> str:
        if self._at_keyboard and OUT.is_terminal:
            return input("> ")
        if self._at_keyboard:
            ERR.out("> ", end="")
        line = sys.stdin.readline() if sys.stdin is not None else ""
        if not line:
            raise EOFError
        return line

    def _add(self, message: Message) -> None:
        # The same words after a failed turn are another try, not a second message.
        if not self._owes_answer() or self._state.messages[-1] != message:
            self._state.add_message(message)

    def _owes_answer(self) -> bool:
        return bool(self._state.messages) and self._state.answer is None

    def _take_turn(self) -> int | None:
        """Run one turn; return an exit code where the person leaves in its middle."""
        try:
            self._runner.run(self._turn())
        except AlpineAgentsError as error:
            fail(error)
            self._failed = True
            if isinstance(error, StateError):
                self._state = self._runner.run(self._store.load(self._state.id))
                _hint("the State was loaded again; write your message once more")
            elif self._at_keyboard:
                self._offer_another_try()
        except KeyboardInterrupt:
            if self._turn_goes_on:
                # A second Ctrl+C, while the end of the turn is being saved. The next run finds out what is missing.
                say("left before the end of the turn was saved", style="red")
                os._exit(INTERRUPTED)
            saved = self._state.status == "cancelled" and not self._state.unsaved
            say("stopped; the turn is saved as cancelled" if saved else "stopped", style="yellow")
            return None if self._at_keyboard else INTERRUPTED
        else:
            self._failed = False
        return None

    async def _turn(self) -> None:
        self._turn_goes_on = True
        try:
            await self._agent.run(self._state)
        finally:
            self._turn_goes_on = False
        if self._terminal.broken:
            raise BrokenPipeError

    def _offer_another_try(self) -> None:
        if self._owes_answer():
            _hint("the last message has no answer yet: press Enter to try again, or write something else")


def _hint(text: str, style: str | None = None) -> None:
    say(clean(text), style=style or "dim")
