"""The demo's tools and its Model: what they see of a folder, and what they never see."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from alpineagents import Agent, State, ToolContext, ToolError
from alpineagents.cli.demo import folder as folder_module
from alpineagents.cli.demo.facts import facts_of
from alpineagents.cli.demo.folder import Folder, decoded
from alpineagents.cli.demo.reader import MAX_READ, FolderReader
from alpineagents.errors import ConfigError

CONTEXT = ToolContext("s", "r", "c", "tool", 1, "s-c", State(id="s"))


def listed(folder: Path) -> list[str]:
    """Return the paths that `list_files` shows."""
    return [line[11:] for line in Folder(folder).list_files(CONTEXT).splitlines()[1:]]


def test_list_shows_text_files_nearest_the_top_first(tmp_path: Path) -> None:
    """What lies at the top tells most, so it comes first."""
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "deep.py").write_text("1")
    (tmp_path / "z.md").write_text("text")

    assert listed(tmp_path) == ["z.md", "a/deep.py"]


@pytest.mark.parametrize(
    "name", [".env", ".git/config", "node_modules/x.js", "__pycache__/x.py", "empty.py", "data.bin", "photo.png"]
)
def test_list_leaves_out_what_is_hidden_empty_binary_or_not_ones_own(tmp_path: Path, name: str) -> None:
    """Secrets, caches and what was only installed do not belong to the folder's story."""
    path = tmp_path / name
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(b"" if name.startswith("empty") else b"\0\1" if name.endswith(("bin", "png")) else b"text")

    assert Folder(tmp_path).is_empty()


def test_list_leaves_out_virtual_environments(tmp_path: Path) -> None:
    """A folder with a pyvenv.cfg is one, whatever its name."""
    (tmp_path / "my-env").mkdir()
    (tmp_path / "my-env" / "pyvenv.cfg").write_text("home = /usr")

    assert listed(tmp_path) == []


def test_no_link_leads_out_of_the_folder(tmp_path: Path) -> None:
    """A link to the outside is neither listed nor read; one to the inside is."""
    inside = tmp_path / "inside"
    inside.mkdir()
    (tmp_path / "secret.txt").write_text("secret")
    (inside / "own.txt").write_text("mine")
    (inside / "out.txt").symlink_to(tmp_path / "secret.txt")
    (inside / "up").symlink_to(tmp_path)
    (inside / "in.txt").symlink_to(inside / "own.txt")

    assert listed(inside) == ["in.txt", "own.txt"]
    for path in ("out.txt", "up/secret.txt", "../secret.txt", str(tmp_path / "secret.txt")):
        with pytest.raises(ToolError, match="outside"):
            Folder(inside).read_file(path, CONTEXT)


@pytest.mark.parametrize(
    "path, match",
    [
        ("none.txt", "cannot be read"),
        (".env", "hidden"),
        ("data.bin", "not a text"),
        ("pipe", "not a file"),
        ("\0", "not a path"),
    ],
)
def test_read_tells_the_model_what_it_cannot_read(tmp_path: Path, path: str, match: str) -> None:
    """A wrong path is an error that the model is told of; a pipe is not opened, since that would wait for ever."""
    (tmp_path / ".env").write_text("KEY=1")
    (tmp_path / "data.bin").write_bytes(b"\0\1\2")
    os.mkfifo(tmp_path / "pipe")

    with pytest.raises(ToolError, match=match):
        Folder(tmp_path).read_file(path, CONTEXT)


def test_read_cuts_a_long_file(tmp_path: Path) -> None:
    """A file of any size gives a result of bounded size."""
    (tmp_path / "long.txt").write_text("x" * (folder_module.MAX_BYTES + 1))

    text = Folder(tmp_path).read_file("long.txt", CONTEXT)

    assert text.endswith(f"… cut after {folder_module.MAX_BYTES} bytes")


def test_a_huge_folder_is_looked_at_in_part(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Beyond the limit nothing is looked at, and the list says that there is more."""
    monkeypatch.setattr(folder_module, "MAX_SEEN", 5)
    for number in range(9):
        (tmp_path / f"{number}.txt").write_text("text")

    assert "at least 5 text file(s)" in Folder(tmp_path).list_files(CONTEXT)


@pytest.mark.parametrize(
    "data, text",
    [
        ("é".encode(), "é"),
        ("é".encode("utf-8-sig"), "é"),
        ("é".encode("utf-16"), "é"),
        ("é".encode("latin-1"), "é"),
        (b"\x7fELF\0", None),
    ],
)
def test_any_encoding_is_read(data: bytes, text: str | None) -> None:
    """Text is read as what it seems to be."""
    assert decoded(data) == text


def test_a_cut_inside_a_character_changes_nothing() -> None:
    """UTF-8 that was cut in the middle of a character is still read as UTF-8."""
    assert decoded("aé".encode()[:2], is_cut=True) == "a"


def test_a_file_is_no_folder(tmp_path: Path) -> None:
    """What is no folder is refused before anything is asked."""
    (tmp_path / "file").write_text("text")

    with pytest.raises(ConfigError, match="is not a folder"):
        Folder(tmp_path / "file")


async def test_the_reader_reads_the_telling_files_at_once(tmp_path: Path) -> None:
    """It lists, reads a few files in parallel calls, and answers: three replies, however many files there are."""
    for number in range(30):
        (tmp_path / f"m{number}.py").write_text(f'"""Part {number} of it."""\n')
    (tmp_path / "README.rst").write_text("Peaks\n=====\n\nIt lists ``mountains``.\n")
    folder = Folder(tmp_path)
    state = State(id="s")
    agent = Agent(FolderReader(), tools=[folder.list_files, folder.read_file])

    answer = await agent.run("What is it?", id=None)

    assert str(answer).startswith("Peaks: It lists mountains.\nIt has 31 text file(s): 30 Python, 1 reStructuredText.")
    assert state.turn == 0
    assert str(answer).splitlines()[-1].count(".py") == MAX_READ - 1


@pytest.mark.parametrize(
    "path, text, name, summary",
    [
        (
            "README.md",
            "<h1 align='center'>Peaks</h1>\n\n![logo](a.png)\n\nA list of [peaks](x). More.",
            "Peaks",
            "A list of peaks.",
        ),
        ("README.md", "Just some words, e.g. these\nover lines", "", "Just some words, e.g. these over lines."),
        ("README.md", "# Only a title", "Only a title", ""),
        ("Cargo.toml", '[package]\nname = "peaks"\ndescription = "Lists peaks"\n', "peaks", "Lists peaks."),
        ("go.mod", "module example.com/peaks\n", "example.com/peaks", ""),
        ("package.json", "not json", "", ""),
        ("package.json", "[1]", "", ""),
        ("pyproject.toml", "= wrong", "", ""),
        ("cut.py", '"""What is cut."""\ndef f(:', "", "What is cut."),
        ("main.c", "// Starts the whole thing.\n#include <x.h>\n", "", "Starts the whole thing."),
        ("main.rs", "// Copyright 2020 by somebody or other.\n", "", ""),
    ],
)
def test_facts_are_what_a_file_says(path: str, text: str, name: str, summary: str) -> None:
    """Whatever people write, a file gives facts or none, never an error."""
    facts = facts_of(path, text)

    assert (facts.name, facts.summary) == (name, summary)
