"""`alpineagents db verify`: what the rows alone say."""

from __future__ import annotations

import sqlite3
from contextlib import closing

import pytest

from alpineagents import Agent, Message, SQLStore, State
from alpineagents.testing import FakeModel
from tests.cli.conftest import Command

FORGED = (
    "UPDATE agent_events SET payload = replace(payload, '\"turn\":0', '\"turn\":1') "
    "WHERE state_id = 'theirs' AND revision = 2"
)


@pytest.fixture
def database(command: Command) -> str:
    """A file with two States, one of them of a tenant and with a change of its context."""
    path = str(command.folder / "agents.db")
    store = SQLStore(path)
    Agent(FakeModel(["Hi"]), store=store).run_sync("Hello", id="plain")
    theirs = State(id="theirs", namespace="tenant", messages=[Message.user("Hello")])
    theirs.compact("They greeted.")
    store.scoped("tenant").save_sync(theirs)
    store.close_sync()
    return path


def change(database: str, statement: str) -> None:
    with closing(sqlite3.connect(database)) as connection, connection:
        assert connection.execute(statement).rowcount == 1


def test_a_whole_database_is_right(command: Command, database: str) -> None:
    """Every State of every namespace is read, and nothing is wrong."""
    done = command.run("db", "verify", database)

    assert (done.returncode, done.stdout) == (0, "2 States, 0 with problems\n")


@pytest.mark.parametrize(
    "statement, said",
    [
        ("DELETE FROM agent_events WHERE state_id = 'plain' AND revision = 3", "plain: State 'plain' is damaged at"),
        (
            "UPDATE agent_events SET payload = '{}' WHERE state_id = 'theirs' AND revision = 1",
            "tenant:theirs: State 'theirs' is damaged",
        ),
        (
            FORGED,
            "tenant:theirs: the checkpoint of revision 2 is not what the history before it comes to",
        ),
        ("UPDATE agent_states SET status = 'finished' WHERE id = 'plain'", "plain: the header says status='finished'"),
        ("UPDATE agent_states SET first_message = 'Bye' WHERE id = 'plain'", "the header says first_message='Bye'"),
    ],
    ids=["a missing row", "a damaged row", "a checkpoint", "another status", "another first message"],
)
def test_what_breaks_a_promise_is_named(command: Command, database: str, statement: str, said: str) -> None:
    """The State and what is wrong with it are written, and the exit code tells programs."""
    change(database, statement)

    done = command.run("db", "verify", database)

    assert done.returncode == 1
    assert said in done.stdout
    assert done.stdout.endswith("2 States, 1 with problems\n")
