"""`alpineagents db …` on both databases, and what the command says of itself."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, version
from urllib.parse import urlsplit, urlunsplit

import pytest

from alpineagents.stores.sql.migrate import head
from tests.cli.conftest import Command


@pytest.fixture(params=["sqlite", "postgres"])
def fresh_url(request: pytest.FixtureRequest) -> str:
    """A database without tables."""
    return "agents.db" if request.param == "sqlite" else str(request.getfixturevalue("postgres_url"))


def test_db_upgrade_makes_the_tables(command: Command, fresh_url: str) -> None:
    """Before: none and not in order. Then an upgrade. After: at head and in order; a second one changes nothing."""
    before = [command.run("db", "current", fresh_url), command.run("db", "check", fresh_url)]

    upgraded = command.run("db", "upgrade", fresh_url)

    after = [command.run("db", name, fresh_url) for name in ("current", "check", "upgrade")]
    assert [done.returncode for done in before] == [0, 1]
    assert before[0].stdout == "none\n"
    assert "alpineagents db upgrade" in before[1].stderr
    assert (upgraded.returncode, head() in upgraded.stdout) == (0, True)
    assert [done.returncode for done in after] == [0, 0, 0]
    assert after[0].stdout == f"{head()}\n"
    assert "already" in after[2].stdout


def test_db_takes_the_url_from_the_environment(command: Command) -> None:
    """Without an argument, the variable names the database, and --store wins over it."""
    env = {"ALPINEAGENTS_DATABASE_URL": "sqlite:///of-env.db"}

    command.run("db", "upgrade", env=env)
    command.run("db", "upgrade", "--store", "of-option.db", env=env)

    assert sorted(path.name for path in command.folder.glob("*.db")) == ["of-env.db", "of-option.db"]


def test_db_upgrade_takes_a_schema(command: Command, postgres_url: str) -> None:
    """The tables can live in a Postgres schema of their own."""
    command.run("db", "upgrade", postgres_url, "--schema", "agents")

    assert command.run("db", "check", postgres_url, "--schema", "agents").returncode == 0
    assert command.run("db", "check", postgres_url).returncode == 1


def test_no_command_shows_a_password(command: Command, postgres_url: str) -> None:
    """A password in a URL is shown neither in what is said nor in an error."""
    parts = urlsplit(postgres_url)
    place = parts.netloc.rpartition("@")[2]
    secret = urlunsplit(parts._replace(netloc=f"nobody:s3cret@{place}"))

    done = [command.run("db", name, secret) for name in ("check", "current", "upgrade")]
    done.append(command.run("list", "--store", secret))

    assert not any("s3cret" in each.stdout + each.stderr for each in done)
    assert not any("Traceback" in each.stderr for each in done)


def test_db_says_that_nobody_answers(command: Command) -> None:
    """A database that is not there is one line of error."""
    done = command.run("db", "check", "postgresql://user:s3cret@127.0.0.1:1/agents")

    assert done.returncode == 1
    assert done.stderr.startswith("error: ")
    assert "s3cret" not in done.stderr


def test_list_works_on_postgres(command: Command, migrated_postgres_url: str) -> None:
    """A store on Postgres is listed as one in a file is."""
    done = command.run("list", "--store", migrated_postgres_url)

    assert (done.returncode, done.stdout) == (0, "")


@pytest.mark.parametrize("args", [(), ("chat",), ("list",), ("show",), ("demo",), ("db",), ("db", "upgrade")])
def test_each_command_has_help_with_an_example(command: Command, args: tuple[str, ...]) -> None:
    """--help says how to call it, and shows a line to type."""
    done = command.run(*args, "--help")

    assert done.returncode == 0
    assert "alpineagents demo" in done.stdout or "Example: alpineagents" in done.stdout or args == ("db",)


def test_the_command_alone_shows_its_help(command: Command) -> None:
    """Whoever types only the name sees what there is."""
    assert "demo" in command.run().stdout


def test_version_is_that_of_the_package(command: Command) -> None:
    """--version names the release."""
    try:
        expected = f"alpineagents {version('alpineagents')}\n"
    except PackageNotFoundError:
        expected = "alpineagents (not installed)\n"

    assert command.run("--version").stdout == expected
