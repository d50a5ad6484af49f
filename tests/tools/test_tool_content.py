"""What a tool returns becomes blocks that a model reads."""

from __future__ import annotations

import dataclasses
import itertools
import json
import subprocess
import sys
import threading
from collections import deque
from collections.abc import Callable
from datetime import UTC, date, datetime
from decimal import Decimal
from enum import Enum
from pathlib import Path, PurePosixPath
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, model_serializer

from alpineagents.errors import ValueNotStorableError
from alpineagents.messages import Image, TextBlock
from alpineagents.tools.content import to_content

PICTURE = Image.from_bytes(b"GIF89a", "image/gif")


class Peak(BaseModel):
    """A model."""

    name: str
    height: Decimal


@dataclasses.dataclass
class Point:
    """A dataclass."""

    x: int
    notes: list[str] = dataclasses.field(default_factory=list)


class Grade(Enum):
    """A plain Enum."""

    EASY = "easy"


class Word(str, Enum):  # noqa: UP042  (its str() is "Word.EASY", which no model should read)
    """An Enum of strings."""

    EASY = "easy"


def text(value: object) -> str:
    """Return the one text that a value becomes."""
    (block,) = to_content(value, "x")
    assert isinstance(block, TextBlock)
    assert type(block.text) is str
    return block.text


@pytest.mark.parametrize(
    "value, said",
    [
        ("as it is", "as it is"),
        ("", ""),
        ("nul \0 and half \ud800", "nul \0 and half \ud800"),
        (None, "done"),
        (True, "true"),
        (3, "3"),
        (0.1, "0.1"),
        (float("nan"), "NaN"),
        (float("-inf"), "-Infinity"),
        (Decimal("1.50"), "1.50"),
        (datetime(2026, 1, 2, 3, 4, tzinfo=UTC), "2026-01-02T03:04:00Z"),
        (date(2026, 1, 2), "2026-01-02"),
        (UUID(int=1), "00000000-0000-0000-0000-000000000001"),
        (PurePosixPath("a/b"), "a/b"),
        (Grade.EASY, "easy"),
        (Word.EASY, "easy"),
        ("naïve".encode(), "naïve"),
        (b"\xff\x00", "/wA="),
        ([], "[]"),
        (["a", "b"], '["a", "b"]'),
        (["half \ud800"], '["half \ud800"]'),
        ((1, None), "[1, null]"),
        ({"größe": {"a": float("inf")}}, '{"größe": {"a": Infinity}}'),
        ({1: "a", date(2026, 1, 2): "b", "half \ud800": "c"}, '{"1": "a", "2026-01-02": "b", "half \ud800": "c"}'),
        ({3, 1, 20}, "[1, 3, 20]"),
        (frozenset({"b", 1}), '["b", 1]'),
        (deque([1]), "[1]"),
        (range(3), "[0, 1, 2]"),
        (Peak(name="M", height=Decimal("4478.0")), '{"name": "M", "height": "4478.0"}'),
        (Point(1, ["\ud800"]), '{"x": 1, "notes": ["\ud800"]}'),
        ([Point(1), Grade.EASY], '[{"x": 1, "notes": []}, "easy"]'),
        ({"raw": [b"\xff"]}, '{"raw": ["/w=="]}'),
        (TextBlock(text="block"), "block"),
    ],
    # Not of a set: its order is another in each process, and those of one run must agree on the names.
    ids=lambda value: type(value).__name__ if isinstance(value, (set, frozenset)) else ascii(value)[:40],
)
def test_a_value_becomes_text(value: object, said: str) -> None:
    """A text stays, nothing is escaped that a model reads better as it is, the rest is JSON."""
    assert text(value) == said


def test_an_image_stays_an_image() -> None:
    """A model sees it."""
    assert to_content(PICTURE, "x") == (PICTURE,)


@pytest.mark.parametrize("sequence", [list, tuple])
def test_texts_and_images_become_a_block_each(sequence: Callable[[list[object]], object]) -> None:
    """In the order returned; what is neither stands between them as JSON."""
    content = to_content(sequence(["before", PICTURE, {"a": 1}]), "x")

    assert content == (TextBlock(text="before"), PICTURE, TextBlock(text='{"a": 1}'))


def own_knot() -> list[Any]:
    """Return a list that holds itself."""
    knot: list[Any] = []
    knot.append(knot)
    return knot


class Broken(BaseModel):
    """A model whose own code fails."""

    @model_serializer
    def write(self) -> dict[str, int]:
        """Fail."""
        raise KeyError("lost")


@pytest.mark.parametrize(
    "value, reason",
    [
        (object(), "is a object"),
        ([threading.Lock()], "lock"),
        ({"a": {"b": object()}}, "is a dict"),
        (itertools.count(), "return list(value)"),
        ((number for number in (1, 2)), "return list(value)"),
        (own_knot(), "holds itself"),
        (10**5000, "is a int"),
        (Broken(), "lost"),
        (Point, "is a type"),
        ({object(): 1}, "is a dict"),
    ],
    ids=lambda value: type(value).__name__,
)
def test_a_value_without_text_is_refused(value: object, reason: str) -> None:
    """The error names the tool, says that it ran, and what to return."""
    with pytest.raises(ValueNotStorableError) as refused:
        to_content(value, "climb")

    assert refused.value.path == "result of tool 'climb'"
    assert reason in str(refused.value)
    assert "The tool did run. Return a str" in str(refused.value)


def test_an_open_file_is_refused_and_not_read(tmp_path: Path) -> None:
    """Its lines would be an accident of where it stands."""
    path = tmp_path / "a.txt"
    path.write_text("line\n")

    with path.open() as file:
        with pytest.raises(ValueNotStorableError):
            to_content({"file": file}, "x")

        assert file.read() == "line\n"


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
)


@given(st.lists(JSON) | st.dictionaries(st.text(), JSON))
def test_json_is_read_back_as_it_was(value: object) -> None:
    """Whatever JSON a tool returns, a model reads that and nothing else."""
    assert json.loads(text(value)) == value


def test_a_set_reads_the_same_in_every_process() -> None:
    """Its order does not hang on the seed of the hash."""
    code = (
        "from alpineagents.tools.content import to_content; print(to_content({'a', 'b', 'c', 'd', 'e'}, 'x')[0].text)"
    )

    said = {
        subprocess.run(
            [sys.executable, "-c", code],
            env={"PYTHONHASHSEED": seed, "PYTHONPATH": ":".join(sys.path)},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in "123"
    }

    assert said == {'["a", "b", "c", "d", "e"]\n'}
