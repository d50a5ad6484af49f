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

from alpineagents.agent import Agent
from alpineagents.cli.gist import Gists
from alpineagents.cli.states import open_store, shown_store, usage_text
from alpineagents.cli.terminal import ERR, OUT, clean, fail, one_line, say, write
from alpineagents.errors import AlpineAgentsError, ConfigError, StateError
from alpineagents.events import ModelReplied, ModelRequested, ToolFinished, ToolStarted
from alpineagents.messages import Message
from alpineagents.models.base import Delta, Fallback, Retry
from alpineagents.runner import Item
from alpineagents.state import State
from alpineagents.stores import SQLStore
from alpineagents.usage import Usage

INTERRUPTED = 130
GIST_LENGTH = 110


def chat(target: str, *, model: str, system: str | None, resume: bool, state_id: str | None) -> int:
    """
    Talk until the person leaves.

    Returns:
        The exit code. With a piped input, 1 if the last turn failed.

    Raises:
        AlpineAgentsError: there is no key, no such model, no store or no State to go on with.
    """
    agent = Agent(model, system=system, store=(store := open_store(target, must_exist=resume)))
    with asyncio.Runner() as runner:
        try:
            state = runner.run(_begin(store, target, resume=resume, state_id=state_id))
            talk = Chat(agent, store, state, runner)
            talk.greet(shown_store(target), resumed=resume)
            return talk.talk()
        finally:
            runner.run(_close(agent, store))


async def _begin(store: SQLStore, target: str, *, resume: bool, state_id: str | None) -> State:
    # Opens the database too, so that what is wrong with it is said before the person has written something.
    newest = await store.list(limit=1)
    if not resume:
        return State()
    if state_id is None:
        if not newest:
            where = shown_store(target)
            raise ConfigError(f"there is no State in {where} to go on with: alpineagents chat --store {where}")
        state_id = newest[0].id
    return await store.load(state_id)


async def _close(agent: Agent, store: SQLStore) -> None:
    await agent.aclose()
    await store.aclose()


class Chat:
    """
    One person's talk with one Agent.

    Args:
        runner: the event loop that all turns run on.
    """

    def __init__(self, agent: Agent, store: SQLStore, state: State, runner: asyncio.Runner) -> None:
        self._agent, self._store, self._state, self._runner = agent, store, state, runner
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
        view = TurnView()
        try:
            self._runner.run(self._turn(view))
        except AlpineAgentsError as error:
            view.end_line()
            fail(error)
            self._failed = True
            if isinstance(error, StateError):
                self._state = self._runner.run(self._store.load(self._state.id))
                _hint("the State was loaded again; write your message once more")
            elif self._at_keyboard:
                self._offer_another_try()
        except KeyboardInterrupt:
            view.end_line()
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

    async def _turn(self, view: TurnView) -> None:
        self._turn_goes_on = True
        try:
            async with self._agent.stream(self._state) as items:
                async for item in items:
                    view.show(item)
        finally:
            self._turn_goes_on = False
        view.end_line()
        if self._state.answer is None and self._state.stopped is not None:
            _hint(str(self._state.stopped))
        _hint(usage_text(view.usage))

    def _offer_another_try(self) -> None:
        if self._owes_answer():
            _hint("the last message has no answer yet: press Enter to try again, or write something else")


class TurnView:
    """
    Shows the items of one turn as they come.

    Attributes:
        usage: what the turn took so far.
    """

    def __init__(self) -> None:
        self.usage = Usage()
        self._gists = Gists()
        self._line_is_open = False
        self._shown = False

    def show(self, item: Item) -> None:
        """Write what a person wants to see of an item."""
        match item:
            case Delta(kind="text"):
                self._write(item.text)
            case Retry():
                self.end_line()
                _hint(f"  {item.error}")
                _hint(f"  trying again in {item.wait_seconds:.0f} s")
            case Fallback():
                self.end_line()
                _hint(f"  {item.error}")
                _hint(f"  asking {item.model}")
            case ModelRequested():
                self._shown = False
            case ModelReplied():
                self.usage = self.usage + item.usage
                self._gists.of(item)
                if not self._shown:
                    self._write(item.message.text)
                self.end_line()
            case ToolStarted():
                _hint(f"  {one_line(self._gists.of(item), GIST_LENGTH)} …")
            case ToolFinished():
                _hint(f"  {one_line(self._gists.of(item), GIST_LENGTH)}", None if item.outcome == "ok" else "red")
            case _:
                pass

    def end_line(self) -> None:
        """End the line that the answer stopped in."""
        if self._line_is_open:
            write("")
            self._line_is_open = False

    def _write(self, text: str) -> None:
        if text:
            write(clean(text), end="")
            self._shown = True
            self._line_is_open = not text.endswith("\n")


def _hint(text: str, style: str | None = None) -> None:
    say(clean(text), style=style or "dim")
