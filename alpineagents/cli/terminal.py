"""
Where the commands write: answers and lists on stdout, all that is said about them on stderr.

What comes from a model or a database may hold control codes; none of them reaches the terminal.
"""

from __future__ import annotations

import contextlib
import io
import sys
import warnings
from datetime import UTC, datetime

from rich.console import Console

from alpineagents.terminal.text import one_line

OUT = Console(markup=False, emoji=False, highlight=False, soft_wrap=True)
ERR = Console(markup=False, emoji=False, highlight=False, soft_wrap=True, stderr=True)


def prepare() -> None:
    """Let no character end the program that the terminal's encoding does not have, and make warnings one line."""
    for stream in (sys.stdin, sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            with contextlib.suppress(ValueError):
                stream.reconfigure(errors="replace")
    warnings.showwarning = _show_warning


def _show_warning(message: Warning | str, *_where: object, **_more: object) -> None:
    say(f"warning: {one_line(str(message))}", style="yellow")


def write(text: str, end: str = "\n") -> None:
    """Write to stdout what may be read by a program; rich would put spaces in the place of tabs."""
    OUT.file.write(text + end)
    OUT.file.flush()


def say(text: str, style: str | None = None) -> None:
    """Write a line about what goes on."""
    ERR.out(text, style=style, highlight=False)


def fail(error: BaseException) -> None:
    """Write the one line that an error is for a person."""
    ERR.print("error: ", style="bold red", end="")
    say(one_line(str(error)) or type(error).__name__, style="red")


def utc(at: datetime) -> str:
    """Return an instant as people and programs read it."""
    return at.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%S")
