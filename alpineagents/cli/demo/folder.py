"""
The demo's tools: list the text files of a folder, and read one. Nothing outside the folder can be seen.

Hidden, empty and binary files, `node_modules`, caches and virtual environments are left out; links that lead out of the
folder too. Both tools are bounded, whatever the folder holds.
"""

from __future__ import annotations

import codecs
import os
import stat
from collections import Counter, deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from alpineagents.errors import ConfigError, ToolError, ToolInputError
from alpineagents.terminal.text import clean
from alpineagents.tools import ToolContext, tool

MAX_SEEN = 20_000
"""How many names are looked at in a folder."""

MAX_SHOWN = 300
MAX_BYTES = 40_000
SNIFFED_BYTES = 1_024

SKIPPED_FOLDERS = frozenset({"node_modules", "__pycache__", "venv", "site-packages", "bower_components"})

BINARY_SUFFIXES = frozenset({"db", "gz", "jpeg", "jpg", "o", "pdf", "png", "pyc", "so", "sqlite", "woff2", "zip"})
"""Not even looked into; of all others, the first bytes decide."""


@dataclass(frozen=True)
class _File:
    path: str
    size_bytes: int


class Folder:
    """
    A folder that an agent may look at; `list_files` and `read_file` are its tools.

    Args:
        root: the folder.
        entered: called by each tool at its beginning, in the tool's own thread.

    Raises:
        ConfigError: it is no folder.
    """

    def __init__(self, root: str | Path, entered: Callable[[ToolContext], None] = lambda _context: None) -> None:
        self.root = Path(root).expanduser().resolve()
        if not self.root.is_dir():
            raise ConfigError(f"{str(root)!r} is not a folder: alpineagents demo .")
        if "\N{REPLACEMENT CHARACTER}" in clean(str(self.root)):
            raise ConfigError(f"the name of the folder {str(root)!r} is not a text")
        self._entered = entered

    def is_empty(self) -> bool:
        """Tell whether there is no file to be read."""
        return next(_Walk(self.root).files(), None) is None

    @tool(read_only=True)
    def list_files(self, context: ToolContext) -> str:
        """List the text files of the folder with their sizes, those nearest the top first."""
        self._entered(context)
        walk = _Walk(self.root)
        files = list(walk.files())
        name = self.root.name or "/"
        if not files:
            return f"folder {name}: no text files"
        kinds = Counter(Path(file.path).suffix or "no-ending" for file in files)
        counts = ", ".join(f"{kind} {count}" for kind, count in kinds.most_common(12))
        lines = [f"folder {name}: {'at least ' if walk.is_cut else ''}{len(files)} text file(s): {counts}"]
        lines += [f"{file.size_bytes:>9}  {file.path}" for file in files[:MAX_SHOWN]]
        if len(files) > MAX_SHOWN:
            lines.append(f"… and {len(files) - MAX_SHOWN} more")
        return "\n".join(lines)

    @tool(read_only=True)
    def read_file(self, path: str, context: ToolContext) -> str:
        """
        Read a text file.

        Args:
            path: as list_files shows it.
        """
        self._entered(context)
        place = self._inside(path)
        try:
            # Looked at before it is opened: to open a pipe would wait for its other end.
            if not stat.S_ISREG(place.stat().st_mode):
                raise ToolInputError(f"{path!r} is not a file. list_files shows what there is")
            with place.open("rb") as file:
                data = file.read(MAX_BYTES + 1)
        except OSError as error:
            raise ToolError(f"{path!r} cannot be read: {error.strerror}. list_files shows what there is") from error
        is_cut = len(data) > MAX_BYTES
        text = decoded(data[:MAX_BYTES], is_cut=is_cut)
        if text is None:
            raise ToolInputError(f"{path!r} is not a text file")
        return f"{text}\n… cut after {MAX_BYTES} bytes" if is_cut else text

    def _inside(self, path: str) -> Path:
        if not path.isprintable():
            raise ToolInputError(f"{path!r} is not a path that list_files shows")
        try:
            place = (self.root / path).resolve()
        except (OSError, RuntimeError) as error:
            raise ToolInputError(f"{path!r} leads nowhere: {error}") from error
        if not place.is_relative_to(self.root):
            raise ToolInputError(f"{path!r} is outside of the folder; nothing there can be read")
        if any(part.startswith(".") for part in place.relative_to(self.root).parts):
            raise ToolInputError(f"{path!r} is hidden; it cannot be read")
        return place


class _Walk:
    """
    A walk through a folder; `files` is to be read once.

    Attributes:
        is_cut: whether there was more to be looked at.
    """

    def __init__(self, root: Path) -> None:
        self._root = root
        self.is_cut = False

    def files(self) -> Iterator[_File]:
        """Yield the text files, nearest the top first."""
        waiting = deque([self._root])
        left = MAX_SEEN
        while waiting:
            entries = _entries(waiting.popleft(), left + 1)
            for entry in entries[:left]:
                try:
                    if entry.is_dir(follow_symlinks=False):
                        if _is_wanted(entry):
                            waiting.append(Path(entry.path))
                    elif file := self._file(entry):
                        yield file
                except OSError:
                    continue
            if len(entries) > left:
                self.is_cut = True
                return
            left -= len(entries)

    def _file(self, entry: os.DirEntry[str]) -> _File | None:
        if not entry.is_file() or (entry.is_symlink() and not Path(entry.path).resolve().is_relative_to(self._root)):
            return None
        # The files of /proc, some of which wait for their reader, have no size.
        size = entry.stat().st_size
        if not size or Path(entry.name).suffix.lower().removeprefix(".") in BINARY_SUFFIXES or not _is_text(entry.path):
            return None
        return _File(Path(entry.path).relative_to(self._root).as_posix(), size)


def _entries(folder: Path, limit: int) -> list[os.DirEntry[str]]:
    """Return what is in a folder in the order of names, so much of it as may be looked at."""
    entries: list[os.DirEntry[str]] = []
    try:
        with os.scandir(folder) as found:
            for entry in found:
                if len(entries) >= limit:
                    break
                # A name that is no text, or holds a line break, cannot be written into a list of lines.
                if not entry.name.startswith(".") and entry.name.isprintable():
                    entries.append(entry)
    except OSError:
        return []
    return sorted(entries, key=lambda entry: entry.name)


def _is_wanted(entry: os.DirEntry[str]) -> bool:
    return entry.name not in SKIPPED_FOLDERS and not (Path(entry.path) / "pyvenv.cfg").exists()


def _is_text(path: str) -> bool:
    with Path(path).open("rb") as file:
        return decoded(file.read(SNIFFED_BYTES), is_cut=True) is not None


def decoded(data: bytes, *, is_cut: bool = False) -> str | None:
    """
    Return the text that the bytes are, in whatever encoding, or None where they are no text.

    Args:
        is_cut: whether there was more, so that the end may be inside a character.

    Example:
        >>> decoded("Gr\u00fcezi".encode("latin-1")), decoded(b"\\x7fELF\\0")
        ('Gr\u00fcezi', None)
    """
    if data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        return data.decode("utf-16", "replace")
    if b"\0" in data:
        return None
    try:
        return codecs.getincrementaldecoder("utf-8-sig")().decode(data, final=not is_cut)
    except UnicodeDecodeError:
        return data.decode("latin-1")
