"""
A pytest plugin that runs every Python block of Markdown files and of docstrings, as `nox -s docs` does.

The blocks of a file run in order and share their names, in a fresh folder; `await` works in them as it stands. A block
that cannot run there, such as one that waits for a person, comes after a line `<!-- skip: next -->`. A docstring shows
its blocks in fences too.
"""

from __future__ import annotations

import ast
import asyncio
import inspect
import os
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from sybil import Example, Sybil
from sybil.document import PythonDocStringDocument
from sybil.parsers.markdown import CodeBlockParser, SkipParser

# Not a name that a block could use.
SURROUNDINGS = "(surroundings)"


class Surroundings:
    """The folder and the event loop of one file's blocks."""

    def __init__(self) -> None:
        self.before = Path.cwd()
        self.folder = tempfile.TemporaryDirectory(prefix="alpineagents-docs-")
        self.runner = asyncio.Runner()
        os.chdir(self.folder.name)

    def leave(self) -> None:
        os.chdir(self.before)
        self.runner.close()
        self.folder.cleanup()


def evaluate(example: Example) -> None:
    """Run one block, on its file's event loop if it awaits something."""
    # Blank lines before it, so that a traceback names the line in the file.
    source = "\n" * (example.line + example.parsed.line_offset) + example.parsed
    code = compile(source, example.path, "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT, dont_inherit=True)
    run: Callable[..., Any] = eval
    result = run(code, example.namespace)
    if code.co_flags & inspect.CO_COROUTINE:
        example.namespace[SURROUNDINGS].runner.run(result)


def enter(namespace: dict[str, Any]) -> None:
    namespace[SURROUNDINGS] = Surroundings()
    namespace["__name__"] = "__main__"


def leave(namespace: dict[str, Any]) -> None:
    namespace.pop(SURROUNDINGS).leave()


pytest_collect_file = Sybil(
    parsers=[CodeBlockParser(language="python", evaluator=evaluate), SkipParser()],
    document_types={".py": PythonDocStringDocument},
    path=str(Path(__file__).parents[1]),
    patterns=["*.md", "*.py"],
    setup=enter,
    teardown=leave,
).pytest()
