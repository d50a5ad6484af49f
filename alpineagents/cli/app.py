"""The commands and their options; what they do is in the modules beside this one."""

from __future__ import annotations

import os
import sys
from importlib.metadata import PackageNotFoundError, version
from typing import Annotated

import typer

from alpineagents.cli import terminal
from alpineagents.errors import AlpineAgentsError
from alpineagents.snapshot import Status

URL_VARIABLE = "ALPINEAGENTS_DATABASE_URL"
STORE = "chat.db"

app = typer.Typer(
    name="alpineagents",
    help="Agents whose every step is a row in a SQL table.\n\nSee one die and go on, without a key: alpineagents demo",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
db = typer.Typer(no_args_is_help=True, help="Make, upgrade and check the tables of a database.")
app.add_typer(db, name="db")

StoreOption = Annotated[
    str,
    typer.Option(envvar=URL_VARIABLE, help="Where States are kept: a SQLite file, or postgresql://…", metavar="URL"),
]
StateId = Annotated[str, typer.Argument(metavar="ID", help="A State's id, as `alpineagents list` shows it.")]
JsonOption = Annotated[bool, typer.Option("--json", help="One JSON object a line.")]


def main() -> None:
    """Run the command line; an error is one line, and its exit code is 1."""
    terminal.prepare()
    try:
        app(prog_name="alpineagents")
    except AlpineAgentsError as error:
        terminal.fail(error)
        sys.exit(1)
    except KeyboardInterrupt:
        sys.exit(130)
    except BrokenPipeError:
        # Whoever read the output has enough of it. Python would try to flush the rest at its end.
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        sys.exit(1)


def _show_version(wanted: bool) -> None:
    if wanted:
        try:
            terminal.OUT.out(f"alpineagents {version('alpineagents')}")
        except PackageNotFoundError:
            terminal.OUT.out("alpineagents (not installed)")
        raise typer.Exit


@app.callback()
def options(
    _version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    """Take the options before the command."""


@app.command()
def chat(
    state_id: Annotated[str | None, typer.Argument(metavar="ID", help="With --resume: which State.")] = None,
    *,
    store: Annotated[
        str | None,
        typer.Option(
            envvar=URL_VARIABLE,
            help="Where States are kept: a SQLite file, or postgresql://…",
            metavar="URL",
            show_default=f"the Agent's, else {STORE}",
        ),
    ] = None,
    agent: Annotated[
        str | None, typer.Option(help="An Agent of your own, with its tools.", metavar="MODULE:NAME")
    ] = None,
    model: Annotated[
        str | None,
        typer.Option(
            help="Such as gpt-5, ollama/llama3.2 or openrouter/….", show_default="the Agent's, else claude-sonnet-5"
        ),
    ] = None,
    system: Annotated[str | None, typer.Option(help="The system prompt.")] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Go on with the State ID, or the newest one.")] = False,
) -> None:
    """
    Talk to a model; every step is saved as it happens.

    Ctrl+C stops an answer, a second one leaves. A piped input is read line by line.

    Example: alpineagents chat --model ollama/llama3.2 --resume

    Example: alpineagents chat --agent office:agent
    """
    from alpineagents.cli.chat import chat as run_chat

    if state_id is not None and not resume:
        raise typer.BadParameter(f"to go on with that State: alpineagents chat --resume {state_id}")
    raise typer.Exit(run_chat(store, agent=agent, model=model, system=system, resume=resume, state_id=state_id))


@app.command("list")
def list_states(
    *,
    store: StoreOption = STORE,
    status: Annotated[Status | None, typer.Option(help="Only those of this status.")] = None,
    limit: Annotated[int, typer.Option(min=1, help="How many at most.")] = 20,
    as_json: JsonOption = False,
) -> None:
    """
    List States, the most recently updated first.

    Into a pipe, the columns are parted by tabs: id, status, revision, turn, updated (UTC), first message.

    Example: alpineagents list --status failed --limit 5
    """
    import asyncio

    from alpineagents.cli import states

    asyncio.run(states.list_states(store, status=status, limit=limit, as_json=as_json))


@app.command()
def show(
    state_id: StateId,
    *,
    store: StoreOption = STORE,
    revision: Annotated[int | None, typer.Option(min=1, help="Only up to here.")] = None,
    as_json: JsonOption = False,
) -> None:
    """
    Show the history of a State, one line an Event.

    Example: alpineagents show demo_thread --store agents.db
    """
    import asyncio

    from alpineagents.cli import states

    asyncio.run(states.show_state(store, state_id, revision=revision, as_json=as_json))


@app.command()
def demo(
    folder: Annotated[str, typer.Argument(help="What the agent is asked about.")] = ".",
    *,
    store: Annotated[
        str, typer.Option(help="A SQLite file, or postgresql://…", metavar="URL")
    ] = "alpineagents-demo.db",
    model: Annotated[str | None, typer.Option(help="A real model in place of the one that needs no key.")] = None,
) -> None:
    """
    See an agent read a folder, be killed in the middle, and finish in another process.

    It needs no key. The exit code is 0 only if all that it claims was observed.

    Example: alpineagents demo ~/code/project
    """
    from alpineagents.cli.demo import demo as run_demo

    raise typer.Exit(run_demo(folder, store, model))


# ------------------------------------------------------------------------------------------------ db

UrlArgument = Annotated[
    str | None, typer.Argument(metavar="URL", help="A SQLite file, or postgresql://…; as --store if left out.")
]
SchemaOption = Annotated[str | None, typer.Option(help="The Postgres schema that holds the tables.")]


@db.command()
def upgrade(url: UrlArgument = None, *, store: StoreOption = STORE, schema: SchemaOption = None) -> None:
    """
    Make the tables, or bring them to what this release needs.

    Example: alpineagents db upgrade postgresql://user:password@host/database
    """
    from alpineagents.cli import database

    database.upgrade(url or store, schema)


@db.command()
def check(url: UrlArgument = None, *, store: StoreOption = STORE, schema: SchemaOption = None) -> None:
    """
    Say whether the tables are what this release needs; the exit code is 1 if not. Changes nothing.

    Example: alpineagents db check agents.db
    """
    from alpineagents.cli import database

    database.check(url or store, schema)


@db.command()
def current(url: UrlArgument = None, *, store: StoreOption = STORE, schema: SchemaOption = None) -> None:
    """
    Show the revision of the tables, or `none`. Changes nothing.

    Example: alpineagents db current agents.db
    """
    from alpineagents.cli import database

    database.current(url or store, schema)


@db.command()
def verify(url: UrlArgument = None, *, store: StoreOption = STORE, schema: SchemaOption = None) -> None:
    """
    Check every history in the database, from the rows alone; the exit code is 1 if something is wrong. Changes nothing.

    Example: alpineagents db verify agents.db
    """
    from alpineagents.cli import database

    raise typer.Exit(0 if database.verify(url or store, schema) else 1)
