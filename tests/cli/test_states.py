"""`alpineagents list` and `show`."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from alpineagents import Agent, Message, SQLStore, State, tool
from alpineagents.testing import FakeModel, tool_call
from tests.cli.conftest import Command


@tool
def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


@pytest.fixture
def filled(command: Command) -> Path:
    """A database with three States, updated in the order of their names."""
    with opened(command) as store:
        store.save_sync(State(id="a-ready", messages=[Message.user("Tabs\tand\nlines")]))
        agent = Agent(FakeModel([tool_call("add", a=1, b=2), "It is 3."]), tools=[add], store=store, name="adder")
        agent.run_sync("What is 1 + 2?", id="b-done")
        failing = Agent(FakeModel([RuntimeError("no luck")]), store=store)
        with pytest.raises(RuntimeError):
            failing.run_sync("Fail", id="c-failed")
    return command.folder / "agents.db"


@contextmanager
def opened(command: Command) -> Iterator[SQLStore]:
    """The store in agents.db, closed at the end of the block."""
    store = SQLStore(command.folder / "agents.db")
    try:
        yield store
    finally:
        store.close_sync()


def test_list_is_newest_first_in_columns(command: Command, filled: Path) -> None:
    """Into a pipe, a State is a line of columns parted by tabs, whatever its message holds."""
    done = command.run("list", "--store", str(filled))

    rows = [line.split("\t") for line in done.stdout.splitlines()]
    assert [row[0] for row in rows] == ["c-failed", "b-done", "a-ready"]
    assert rows[1][1:4] == ["stopped", "9", "2"]
    assert rows[2][5] == "Tabs and lines"


def test_list_takes_a_status_and_a_limit(command: Command, filled: Path) -> None:
    """--status and --limit narrow the list."""
    failed = command.run("list", "--store", str(filled), "--status", "failed")
    newest = command.run("list", "--store", str(filled), "--limit", "1")

    assert failed.stdout.split("\t")[0] == newest.stdout.split("\t")[0] == "c-failed"
    assert failed.stdout.count("\n") == newest.stdout.count("\n") == 1


def test_list_gives_json_lines(command: Command, filled: Path) -> None:
    """--json gives an object a line, with all that is known of a State."""
    infos = command.listed(str(filled))

    assert [info["id"] for info in infos] == ["c-failed", "b-done", "a-ready"]
    assert (infos[1]["agent"], infos[1]["usage"]["requests"]) == ("adder", 2)


def test_list_shows_a_table_at_a_terminal(command: Command, filled: Path) -> None:
    """At a terminal the columns have names."""
    with command.at_terminal("list", "--store", str(filled)) as terminal:
        shown = terminal.read_until("a-ready")

    assert all(name in shown for name in ("revision", "turn", "first message"))
    assert "updated (UTC)" in shown


def test_list_says_that_there_is_nothing(command: Command) -> None:
    """An empty store is no error, and stdout stays empty."""
    command.run("db", "upgrade", "agents.db")

    done = command.run("list", "--store", "agents.db")

    assert (done.returncode, done.stdout) == (0, "")
    assert "no States in agents.db" in done.stderr


@pytest.mark.parametrize("args", [("list",), ("show", "demo")])
def test_looking_makes_no_database(command: Command, args: tuple[str, ...]) -> None:
    """A wrong path is an error, not a new file."""
    done = command.run(*args, "--store", "wrong.db")

    assert done.returncode == 1
    assert done.stderr.startswith("error: there is no database 'wrong.db'")
    assert list(command.folder.iterdir()) == []


def test_list_refuses_a_file_that_is_no_database(command: Command) -> None:
    """A file of another kind is one line of error."""
    (command.folder / "notes.txt").write_text("This is no database. " * 100)

    done = command.run("list", "--store", "notes.txt")

    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith("error: ")
    assert "Traceback" not in done.stderr


def test_show_gives_a_line_an_event(command: Command, filled: Path) -> None:
    """The history comes in order, with the gist of each Event, and at the end what it comes to."""
    done = command.run("show", "b-done", "--store", str(filled))

    lines = done.stdout.splitlines()
    assert [line.split()[0] for line in lines[:9]] == [str(revision) for revision in range(1, 10)]
    assert lines[4].endswith("tool_started        add(a=1, b=2)")
    assert lines[5].endswith("tool_finished       add(a=1, b=2) → ok: 3")
    assert lines[10:13] == ["status  stopped (stopped by waiting_for_user)", "answer  It is 3.", lines[12]]
    assert lines[12].startswith("usage   ")


def test_show_stops_at_a_revision(command: Command, filled: Path) -> None:
    """--revision shows the State as it was, with the calls that were open."""
    done = command.run("show", "b-done", "--store", str(filled), "--revision", "5")

    assert "tool_finished" not in done.stdout
    assert "status  running" in done.stdout
    assert "open    add(a=1, b=2): started, no result yet" in done.stdout


def test_show_gives_json_lines(command: Command, filled: Path) -> None:
    """--json gives each Event whole, one a line."""
    done = command.run("show", "b-done", "--store", str(filled), "--json")

    events = [json.loads(line) for line in done.stdout.splitlines()]
    assert [event["revision"] for event in events] == list(range(1, 10))
    assert events[3]["message"]["content"][0]["args"] == {"a": 1, "b": 2}


def test_show_refuses_an_unknown_id(command: Command, filled: Path) -> None:
    """An id that is not there is one line of error."""
    done = command.run("show", "nobody", "--store", str(filled))

    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith("error: State 'nobody' is not in the store")


def test_show_gives_what_comes_before_a_damage(command: Command, filled: Path) -> None:
    """Of a damaged State, the readable part is shown, and then the error."""
    with sqlite3.connect(filled) as database:
        database.execute("UPDATE agent_events SET payload = '{' WHERE state_id = 'b-done' AND revision = 4")
    database.close()

    done = command.run("show", "b-done", "--store", str(filled))

    assert done.returncode == 1
    assert len(done.stdout.splitlines()) == 3
    assert "damaged at revision 4" in done.stderr


def test_show_cuts_a_line_at_the_width_of_the_terminal(command: Command) -> None:
    """A long message takes one line of the terminal."""
    with opened(command) as store:
        store.save_sync(State(id="long", messages=[Message.user("word " * 100)]))

    with command.at_terminal("show", "long", "--store", "agents.db") as terminal:
        shown = terminal.read_until("usage")

    first = shown.splitlines()[0]
    assert "message_added" in first
    assert "…" in first
