"""What `import alpineagents` brings in, and what waits until a program names it."""

from __future__ import annotations

import subprocess
import sys

import pytest

import alpineagents
from alpineagents import stores

HEAVY = ("alembic", "asyncio", "asyncpg", "docstring_parser", "filelock", "httpx", "rich", "sqlalchemy", "typer")


def run(program: str) -> str:
    return subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout


def test_nothing_heavy_is_imported_before_it_is_named() -> None:
    """A program that names no SQL store and runs no model does not wait for what they need."""
    assert run(f"import sys, alpineagents; print([name for name in {HEAVY} if name in sys.modules])").strip() == "[]"


WAITING = [
    ("alpineagents", "FileStore"),
    ("alpineagents", "SQLStore"),
    ("alpineagents", "OpenAICompatible"),
    ("alpineagents.stores", "SQLStore"),
    ("alpineagents.models", "resolve_model"),
]


@pytest.mark.parametrize("module, name", WAITING)
def test_what_waits_is_imported_when_it_is_named(module: str, name: str) -> None:
    """What is imported late comes by every way to write its name: as an attribute, by `from` and by `*`."""
    assert run(f"import {module} as module; print(module.{name}.__name__)").strip() == name
    assert run(f"from {module} import {name}; print({name}.__name__)").strip() == name
    assert run(f"from {module} import *; print({name}.__name__)").strip() == name


def test_every_public_name_is_listed_before_it_is_imported() -> None:
    """`dir()` shows all public names from the start, so that completion finds them."""
    listed = run("import alpineagents; print(*dir(alpineagents))").split()

    assert set(alpineagents.__all__) <= set(listed)


@pytest.mark.parametrize("module", [alpineagents, stores], ids=["alpineagents", "stores"])
def test_a_name_that_is_not_there_is_an_attribute_error(module: object) -> None:
    """A name that is written wrongly is an error like that of any module."""
    with pytest.raises(AttributeError, match="SQLStor"):
        _ = module.SQLStor
