"""
A line that a person types, read without a thread: a run that is cancelled leaves nothing behind that still reads.
"""

from __future__ import annotations

import os
import sys
from contextlib import suppress
from typing import TextIO

import anyio
import anyio.to_thread


def is_at_hand(keyboard: TextIO | None) -> bool:
    """Tell whether a person could type."""
    try:
        return keyboard is not None and keyboard.isatty()
    except ValueError:
        return False


def forget_typed(keyboard: TextIO) -> None:
    """Drop what was typed before: nobody answers a question that they have not seen."""
    if sys.platform != "win32":
        import termios

        with suppress(termios.error):
            termios.tcflush(keyboard.fileno(), termios.TCIFLUSH)


async def read_line(keyboard: TextIO) -> str:
    """
    Return the next line that is typed, without its end.

    Raises:
        EOFError: Ctrl+D was pressed, or the terminal is gone.
    """
    if sys.platform == "win32":
        # Its event loops cannot wait for a console; a thread there is left behind.
        line = await anyio.to_thread.run_sync(keyboard.readline, abandon_on_cancel=True)
        if not line:
            raise EOFError
        return line.rstrip("\r\n")
    typed = b""
    while not typed.endswith(b"\n"):
        await anyio.wait_readable(keyboard.fileno())
        try:
            got = os.read(keyboard.fileno(), 4096)
        except OSError as gone:
            raise EOFError from gone
        if not got:
            raise EOFError
        typed += got
    return typed.decode(keyboard.encoding or "utf-8", "replace").rstrip("\r\n")
