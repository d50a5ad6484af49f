"""
What is written to a terminal: a model's words as they come, lines about what goes on, and a spinner while one waits.

Nothing that is written here raises: where the reader has left, the rest is dropped.
"""

from __future__ import annotations

import io
import os
from collections.abc import Mapping
from contextlib import suppress
from typing import IO, TYPE_CHECKING, TextIO, cast

from alpineagents.terminal.text import clean, one_line

if TYPE_CHECKING:
    from rich.progress import TaskID

PLAIN_WIDTH = 110
"""Characters of a line about a call, where no terminal says how wide it is."""


class Steady(io.TextIOBase):
    """
    A text stream that never raises.

    Attributes:
        broken: whoever read it has left, or it was closed.
    """

    def __init__(self, stream: TextIO | None) -> None:
        # None: a program without a console has no streams.
        self._stream = io.StringIO() if stream is None else stream
        self.broken = stream is None

    def write(self, text: str) -> int:
        """Write and flush; drop what cannot be written."""
        if self.broken:
            return len(text)
        try:
            self._stream.write(text)
            self._stream.flush()
        except UnicodeEncodeError:
            encoding = self._stream.encoding or "ascii"
            return self.write(text.encode(encoding, "replace").decode(encoding))
        except BrokenPipeError:
            self.broken = True
            # What is left in the stream's buffer would raise again when Python ends.
            with suppress(OSError, ValueError):
                nowhere = os.open(os.devnull, os.O_WRONLY)
                os.dup2(nowhere, self._stream.fileno())
                os.close(nowhere)
        except (OSError, ValueError):
            self.broken = True
        return len(text)

    def isatty(self) -> bool:
        """Tell whether a person sees it."""
        try:
            return self._stream.isatty()
        except ValueError:
            return False

    def fileno(self) -> int:
        """Return the descriptor below."""
        return self._stream.fileno()

    @property
    def encoding(self) -> str:  # type: ignore[override]  # typeshed has a plain attribute
        """Return that of the stream."""
        return getattr(self._stream, "encoding", None) or "utf-8"


class Screen:
    """
    Words on one stream, lines about what goes on and the spinner on the other.

    Args:
        quiet: write nothing; None for nothing on a stream that is no terminal.
    """

    def __init__(self, words: TextIO | None, lines: TextIO | None, *, quiet: bool | None) -> None:
        from rich.console import Console
        from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

        self.words, self.lines = Steady(words), Steady(lines)
        self._shows_words = self.words.isatty() if quiet is None else not quiet
        self._shows_lines = self.lines.isatty() if quiet is None else not quiet
        self._console = Console(file=cast("IO[str]", self.lines), markup=False, emoji=False, highlight=False)
        self.spins = self._shows_lines and self.lines.isatty() and self._console.is_interactive
        self._progress = Progress(
            SpinnerColumn(),
            TextColumn("{task.description}", markup=False),
            TimeElapsedColumn(),
            console=self._console,
            transient=True,
            # What a tool prints stands above the spinner, but what goes to a file goes there.
            redirect_stdout=self.words.isatty(),
        )
        self._tasks: dict[str, TaskID] = {}
        self._line_is_open = False

    @property
    def width(self) -> int:
        """How many characters a line may have."""
        return max(20, self._console.width - 4) if self.lines.isatty() else PLAIN_WIDTH

    def word(self, text: str) -> None:
        """Write words that go on where the last ones ended."""
        if text and self._shows_words:
            self.wait({})
            self.words.write(clean(text))
            self._line_is_open = not text.endswith("\n")

    def end_line(self) -> None:
        """End the line that the words stopped in."""
        if self._line_is_open:
            self.words.write("\n")
            self._line_is_open = False

    def line(self, text: str, style: str = "dim") -> None:
        """Write a line about what goes on."""
        if self._shows_lines:
            self.end_line()
            self._console.out(clean(text), style=style, highlight=False)

    def ask(self, text: str, *, end: str = "\n", style: str | None = None) -> None:
        """Write a part of a question; it is shown also where all else is quiet."""
        self.wait({})
        self.end_line()
        self._console.out(clean(text), style=style, highlight=False, end=end)

    def wait(self, descriptions: Mapping[str, str]) -> None:
        """Show a spinner for each of these, by name, or none at all."""
        if not self.spins:
            return
        for name in set(self._tasks) - set(descriptions):
            self._progress.remove_task(self._tasks.pop(name))
        for name, text in descriptions.items():
            shown = one_line(text, max(10, self.width - 10))
            if name in self._tasks:
                self._progress.update(self._tasks[name], description=shown)
            else:
                self._tasks[name] = self._progress.add_task(shown, total=None)
        if self._tasks and not self._progress.live.is_started:
            self.end_line()
            self._progress.start()
        elif not self._tasks and self._progress.live.is_started:
            self._progress.stop()
