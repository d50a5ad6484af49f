"""alembic on the command line: ours by a user's own ini, and an app's own beside our tables."""

from __future__ import annotations

import argparse
import io
import logging
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from alembic import command
from alembic.config import Config
from alembic.util import CommandError

from alpineagents.stores.sql.migrate import async_url, check, current, head, migrations_folder, upgrade

Ini = Callable[..., Config]


def text_of(stream: object) -> str:
    assert isinstance(stream, io.StringIO)
    return stream.getvalue()


def test_upgrade_by_the_ini_s_url(url: str, ini: Ini) -> None:
    """An ini that names our migrations and a URL is enough."""
    command.upgrade(ini(url), "head")

    check(url)


def test_upgrade_by_the_environment(url: str, ini: Ini, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a URL in the ini the variable counts."""
    config = ini(None)
    monkeypatch.setenv("ALPINEAGENTS_DATABASE_URL", url)

    command.upgrade(config, "head")

    check(url)


def test_without_a_url_both_ways_are_named(ini: Ini) -> None:
    """The error says which variable to set."""
    with pytest.raises(CommandError, match=r"ALPINEAGENTS_DATABASE_URL.*sqlalchemy\.url"):
        command.upgrade(ini(None), "head")


def test_our_errors_are_alembic_s_there(ini: Ini) -> None:
    """The command line shows one line instead of a traceback, without the password."""
    with pytest.raises(CommandError, match=r"bob:\*\*\*@127\.0\.0\.1:1/db does not answer"):
        command.upgrade(ini("postgresql://bob:s3cret@127.0.0.1:1/db"), "head")


def test_down_and_up_again(url: str, ini: Ini) -> None:
    """A downgrade takes everything away, and an upgrade brings it back."""
    config = ini(url)
    command.upgrade(config, "head")

    command.downgrade(config, "base")
    assert current(url) is None
    command.upgrade(config, "head")

    check(url)


def test_the_library_upgrades_what_was_downgraded(url: str, ini: Ini) -> None:
    """The empty version table that alembic leaves behind is no hindrance."""
    upgrade(url)
    command.downgrade(ini(url), "base")

    assert upgrade(url) == head()


def test_our_tables_are_as_our_migrations_say(url: str, ini: Ini) -> None:
    """`alembic check` finds nothing to do, and does not look at the app's tables."""
    upgrade(url)

    command.check(ini(url))


def test_a_schema_is_named_with_x(postgres_url: str, ini: Ini) -> None:
    """`-x schema=agents` is the store's `schema="agents"`, for `check` as well."""
    config = ini(postgres_url, cmd_opts=argparse.Namespace(x=["schema=agents"]))

    command.upgrade(config, "head")
    command.check(config)

    check(postgres_url, schema="agents")


@pytest.mark.parametrize("dialect", ["sqlite:///none.db", "postgresql://bob:s3cret@nowhere/db"])
def test_a_script_is_written_without_a_database(dialect: str, ini: Ini) -> None:
    """`--sql` connects to nothing and gives one transaction."""
    config = ini(dialect)

    command.upgrade(config, "head", sql=True)

    script = text_of(config.output_buffer)
    assert script.startswith("BEGIN;")
    assert script.rstrip().endswith("COMMIT;")
    assert "CREATE TABLE agent_events" in script
    assert "s3cret" not in script


async def test_a_written_script_makes_the_schema(postgres_url: str, ini: Ini) -> None:
    """What a database administrator runs by hand is what the library would have made, in the schema that was named."""
    import asyncpg

    config = ini(postgres_url, cmd_opts=argparse.Namespace(x=["schema=agents"]))
    command.upgrade(config, "head", sql=True)
    connection = await asyncpg.connect(postgres_url)
    await connection.execute(text_of(config.output_buffer))
    await connection.close()

    check(postgres_url, schema="agents")


def test_the_app_s_loggers_go_on(url: str) -> None:
    """A migration switches off nobody's logger."""
    logger = logging.getLogger("an.app")

    upgrade(url)

    assert not logger.disabled


# ------------------------------------------------------------------------------------------------ an app's own alembic

APP_ENV = """
import asyncio

from alembic import context
from sqlalchemy import Column, Integer, MetaData, Table
from sqlalchemy.ext.asyncio import create_async_engine

{recipe}

metadata = MetaData()
Table("invoices", metadata, Column("id", Integer, primary_key=True))


def run(connection):
    context.configure(connection=connection, target_metadata=metadata, include_name=include_name)
    with context.begin_transaction():
        context.run_migrations()


async def main():
    engine = create_async_engine(context.config.get_main_option("sqlalchemy.url"))
    async with engine.connect() as connection:
        await connection.run_sync(run)
    await engine.dispose()


asyncio.run(main())
"""

RECIPE = "from alpineagents.stores.sql.migrate import include_name"


def autogenerate(url: str, folder: Path, recipe: str) -> str:
    """Run `alembic revision --autogenerate` of an app that has one table of its own; return what it wrote."""
    (folder / "versions").mkdir(parents=True)
    (folder / "env.py").write_text(APP_ENV.format(recipe=recipe))
    shutil.copy(migrations_folder() / "script.py.mako", folder)
    config = Config(stdout=io.StringIO())
    config.set_main_option("script_location", str(folder))
    config.set_main_option("sqlalchemy.url", async_url(url).render_as_string(hide_password=False))
    script = command.revision(config, "first", autogenerate=True)
    assert script is not None
    assert not isinstance(script, list)
    return Path(script.path).read_text()


def test_an_app_s_autogenerate_leaves_our_tables_alone(url: str, tmp_path: Path) -> None:
    """With the recipe it proposes the app's table, and nothing about ours."""
    upgrade(url)

    written = autogenerate(url, tmp_path / "app", RECIPE)

    assert "create_table('invoices'" in written
    assert "agent" not in written


def test_without_the_recipe_it_would_drop_them(url: str, tmp_path: Path) -> None:
    """The recipe is needed: this is what happens otherwise."""
    upgrade(url)

    written = autogenerate(url, tmp_path / "app", "include_name = None")

    assert "drop_table('agent_events')" in written
