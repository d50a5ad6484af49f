"""
`Terminal`: shows a run as it goes on, and asks the person in front of it.
"""

from __future__ import annotations

import json
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import anyio
from pydantic import JsonValue

from alpineagents.approvals import PendingApproval
from alpineagents.errors import ApprovalError, ConfigError
from alpineagents.events import (
    ApprovalDecided,
    ContextChanged,
    ModelFailed,
    ModelReplied,
    ModelRequested,
    RunStopped,
    ToolFinished,
    ToolStarted,
)
from alpineagents.models.base import Delta, Fallback, Retry
from alpineagents.permissions import Allow, Deny
from alpineagents.runner import Item
from alpineagents.stopped import StoppedByCancel, StoppedByError, StoppedByFinish, StoppedByUntil
from alpineagents.terminal.gist import Gists
from alpineagents.terminal.keyboard import forget_typed, is_at_hand, read_line
from alpineagents.terminal.screen import Screen
from alpineagents.terminal.text import clean, one_line, usage_text
from alpineagents.tools import Progress
from alpineagents.usage import Usage

MODEL = "model"
MAX_ARGUMENT_LENGTH = 4000
"""Characters of an argument that a person is shown; of a longer one, they are told how much is left out."""


class Terminal:
    """
    The terminal as the reporter of an Agent, as its human, or both.

    As a reporter it shows the model's words on stdout as they come, and on stderr each call with what came of it, what
    is waited for, retries, and at the end what the run took. As a human it asks about calls that need an approval, and
    waits at the keyboard without holding up anything else.

    Args:
        quiet: False shows plain lines where stdout and stderr are no terminal, such as in the log of a CI job; True
            shows nothing; None shows nothing on a stream that is no terminal. Questions are put in any case.
        name: who sits there, as the history names them.

    Example:
        >>> from alpineagents import Agent
        >>> from alpineagents.testing import FakeModel
        >>> terminal = Terminal()
        >>> Agent(FakeModel(["Good day."]), reporter=terminal, human=terminal).run_sync("Hello")
        'Good day.'
    """

    def __init__(self, *, quiet: bool | None = None, name: str = "human") -> None:
        if quiet not in (None, True, False):
            raise ConfigError(f"quiet={quiet!r} is not None, True or False: Terminal(quiet=False)")
        if not isinstance(name, str) or not name.strip():
            raise ConfigError(f'name={name!r} is not who sits at the terminal: Terminal(name="Ada")')
        self.name = name
        self._screen = Screen(sys.stdout, sys.stderr, quiet=quiet)
        self._keyboard = sys.stdin
        # Items come from the thread of the reporter, questions from the event loop.
        self._lock = threading.RLock()
        self._one_question = anyio.Lock()
        self._asking = False
        self._gists = Gists()
        self._waiting: dict[str, str] = {}
        # By run: an Agent and one that works for it may share a terminal.
        self._usage: dict[str | None, Usage] = {}
        self._has_shown_reply = False

    def __repr__(self) -> str:
        return f"<Terminal name={self.name!r}>"

    @property
    def at_hand(self) -> bool:
        """Whether somebody can be asked: stdin and stderr are a terminal."""
        return is_at_hand(self._keyboard) and self._screen.lines.isatty()

    @property
    def broken(self) -> bool:
        """Whether whoever read stdout has left."""
        return self._screen.words.broken

    # -------------------------------------------------------------------------------------------- reporter

    def __call__(self, item: Item) -> None:
        """Show an item."""
        with self._lock:
            if isinstance(item, (Delta, Retry, Fallback, Progress)):
                self._show_passing(item)
            else:
                self._show_event(item)
            self._wait()

    def run_ended(self) -> None:
        """End what is shown of a run, whichever way that ended."""
        with self._lock:
            self._waiting = {}
            self._wait()
            self._screen.end_line()

    def _show_passing(self, item: Delta | Retry | Fallback | Progress) -> None:
        match item:
            case Delta(kind="text"):
                self._waiting.pop(MODEL, None)
                self._screen.word(item.text)
                self._has_shown_reply = self._has_shown_reply or bool(item.text)
            case Delta(kind="thinking"):
                self._waiting[MODEL] = "thinking"
            case Delta():
                self._waiting[MODEL] = f"calling {item.tool_name}" if item.tool_name else "calling"
            case Retry():
                self._has_shown_reply = False
                self._screen.line(f"  {item.error}")
                self._screen.line(f"  trying again in {item.wait_seconds:.0f} s")
            case Fallback():
                self._has_shown_reply = False
                self._screen.line(f"  {item.error}")
                self._screen.line(f"  asking {item.model}")
            case Progress():
                total = "" if item.total is None else f"/{item.total:g}"
                about = f"{self._gists.call(item.call_id)} {item.progress:g}{total} {item.message}"
                if item.call_id in self._waiting:
                    self._waiting[item.call_id] = about

    def _show_event(self, item: Item) -> None:
        match item:
            case ModelRequested():
                self._has_shown_reply = False
                self._waiting[MODEL] = f"asking {item.model}"
            case ModelReplied():
                self._gists.of(item)
                self._count(item.run_id, item.usage)
                if not self._has_shown_reply:
                    self._screen.word(item.message.text)
                self._screen.end_line()
            case ModelFailed():
                self._count(item.run_id, item.usage)
            case ContextChanged(reason="compact"):
                self._count(item.run_id, item.usage)
                self._tell(self._gists.of(item))
            case ToolStarted():
                self._waiting[item.call_id] = self._gists.of(item)
                if not self._screen.spins:
                    self._tell(self._gists.of(item), " …")
            case ToolFinished():
                self._waiting.pop(item.call_id, None)
                self._tell(self._gists.of(item), style="dim" if item.outcome == "ok" else "red")
                self._gists.forget(item.call_id)
            case ApprovalDecided() if item.by != self.name:
                self._tell(self._gists.of(item))
            case RunStopped():
                self._show_end(item)

    def _count(self, run_id: str | None, usage: Usage | None) -> None:
        self._waiting.pop(MODEL, None)
        self._usage[run_id] = self._usage.get(run_id, Usage()) + (usage or Usage())

    def _show_end(self, item: RunStopped) -> None:
        stopped = item.stopped
        # An error and a Ctrl+C are raised as well: whoever runs the Agent tells of them.
        said = isinstance(stopped, (StoppedByError, StoppedByUntil, StoppedByFinish))
        if not said and not (isinstance(stopped, StoppedByCancel) and not stopped.by):
            self._screen.line(str(stopped), "yellow")
        usage = self._usage.pop(item.run_id, Usage())
        if usage.total_tokens or usage.cost_usd:
            self._screen.line(usage_text(usage))

    def _tell(self, gist: str, end: str = "", style: str = "dim") -> None:
        self._wait()  # a call that has ended is waited for no longer
        self._screen.line(f"  {one_line(gist, self._screen.width)}{end}", style)

    def _wait(self) -> None:
        self._screen.wait({} if self._asking else self._waiting)

    # -------------------------------------------------------------------------------------------- human

    async def approve(self, request: PendingApproval) -> Allow | Deny:
        """
        Ask whether a call may be made: yes, no and why, or always in this State.

        Raises:
            ConfigError: nobody sits at a terminal.
            ApprovalError: they pressed Ctrl+D. The call goes on waiting in the store.
        """
        self._check_at_hand()
        async with self._one_question:
            with self._questioning(_lines(request)):
                try:
                    return await self._decision()
                except EOFError:
                    raise ApprovalError(
                        request.state_id, request.call_id, "nobody answered at the terminal; it goes on waiting"
                    ) from None

    async def ask(self, question: str) -> JsonValue:
        """
        Put a question and return the line that is typed.

        Raises:
            ConfigError: nobody sits at a terminal.
            EOFError: they pressed Ctrl+D.
        """
        self._check_at_hand()
        async with self._one_question:
            with self._questioning([question]):
                return await self._read("> ")

    async def _decision(self) -> Allow | Deny:
        while True:
            word, _, reason = (await self._read("Allow it? [y]es, [n]o, [a]lways here: ")).strip().partition(" ")
            match word.lower().rstrip(",:"):
                case "y" | "yes":
                    return Allow()
                case "a" | "always":
                    return Allow(always="state")
                case "n" | "no":
                    return Deny(reason.strip() or (await self._read("Why not? (Enter for no reason) ")).strip() or "no")

    async def _read(self, prompt: str) -> str:
        with self._lock:
            forget_typed(self._keyboard)
            self._screen.ask(prompt, end="")
        return await read_line(self._keyboard)

    @contextmanager
    def _questioning(self, lines: list[str]) -> Iterator[None]:
        """Put a question; no spinner turns while it is open."""
        with self._lock:
            self._asking = True
            self._wait()
            for number, line in enumerate(lines):
                self._screen.ask(line, style=None if number else "bold")
        try:
            yield
        except BaseException:
            with self._lock:
                self._screen.ask("")  # ends the line of the prompt
            raise
        finally:
            with self._lock:
                self._asking = False
                self._wait()

    def _check_at_hand(self) -> None:
        if not self.at_hand:
            raise ConfigError(
                "nobody can be asked, since stdin or stderr is no terminal. Leave human=Terminal() out, and a call "
                "that needs an approval waits in the store: await store.approve(id, call_id, by=…)"
            )


def _lines(request: PendingApproval) -> list[str]:
    """Return a question with all that the tool would get, a line each: what is not shown could not be judged."""
    lines = [one_line(request.question), f"  {one_line(request.tool)}"]
    for name, value in request.args.items():
        shown = json.dumps(value, ensure_ascii=False)
        more = len(shown) - MAX_ARGUMENT_LENGTH
        left_out = f" … and {more:,} characters more" if more > 0 else ""
        lines.append(f"    {one_line(name)} = {clean(shown[:MAX_ARGUMENT_LENGTH])}{left_out}")
    return lines
