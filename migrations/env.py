"""
What alembic runs for each command, in two ways.

    by the library      alpineagents.stores.sql.migrate hands in a connection that holds the lock and a transaction
    by alembic itself   `alembic upgrade head`; the URL is `sqlalchemy.url` of the ini or ALPINEAGENTS_DATABASE_URL,
                        `-x schema=name` names a Postgres schema, `--sql` writes a script and connects to nothing

No `fileConfig` here: it would switch off the loggers of the app that calls.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from alembic import context
from alembic.util import CommandError
from sqlalchemy import Connection

from alpineagents.errors import AlpineAgentsError
from alpineagents.stores.sql import migrate
from alpineagents.stores.sql.tables import TABLE_NAMES, VERSION_TABLE, make_tables
from alpineagents.stores.sql.urls import async_url, check_schema

URL_VARIABLE = "ALPINEAGENTS_DATABASE_URL"


def named_url() -> str:
    """Return the URL that the ini or the environment names."""
    url = context.config.get_main_option("sqlalchemy.url") or os.environ.get(URL_VARIABLE)
    if not url:
        raise CommandError(
            f"no database is named: export {URL_VARIABLE}=postgresql://user:password@host/database "
            "(or sqlite:///agents.db), or set sqlalchemy.url in the ini"
        )
    return url


def run(connection: Connection, *, schema: str | None) -> None:
    """Run the command on a connection that is in a transaction and, on Postgres, in the schema."""

    def is_ours(name: str | None, type_: str, parent_names: Mapping[Any, str | None]) -> bool:
        # The database may be the app's own: what is not ours is not compared.
        if type_ == "schema":
            return name == schema
        return type_ != "table" or (name in TABLE_NAMES and parent_names.get("schema_name") == schema)

    context.configure(
        connection=connection,
        target_metadata=make_tables(schema).metadata,
        version_table=VERSION_TABLE,
        version_table_schema=schema,
        include_schemas=schema is not None,
        include_name=is_ours,
        render_as_batch=connection.dialect.name == "sqlite",
    )
    with context.begin_transaction():
        context.run_migrations()


def write_script(url: str, *, schema: str | None) -> None:
    """Write the statements to the output, as one transaction."""
    parsed = async_url(url)
    check_schema(schema, parsed.get_backend_name())
    context.configure(
        url=parsed,
        version_table=VERSION_TABLE,
        version_table_schema=schema,
        literal_binds=True,
        transactional_ddl=True,
    )
    with context.begin_transaction():
        if schema is not None:
            quoted = context.get_context().dialect.identifier_preparer.quote(schema)
            context.execute(f"CREATE SCHEMA IF NOT EXISTS {quoted}")
            context.execute(f"SET LOCAL search_path TO {quoted}")
        context.run_migrations()


def main() -> None:
    given = context.config.attributes.get("connection")
    if given is not None:
        run(given, schema=context.config.attributes.get("schema"))
        return
    schema = context.get_x_argument(as_dictionary=True).get("schema")
    try:
        if context.is_offline_mode():
            write_script(named_url(), schema=schema)
        else:
            migrate.run_locked(named_url(), lambda connection: run(connection, schema=schema), schema=schema)
    except AlpineAgentsError as error:
        raise CommandError(str(error)) from error


main()
