"""A process that stops in the middle of a migration, says "middle", and waits to be killed: `stopper.py URL`."""

from __future__ import annotations

import sys
import time
from typing import Any

from alembic.ddl.impl import DefaultImpl
from sqlalchemy import Table

from alpineagents.stores.sql.migrate import upgrade

create_table = DefaultImpl.create_table


def stop_at_events(impl: DefaultImpl, table: Table, **options: Any) -> None:
    create_table(impl, table, **options)
    if table.name == "agent_events":
        print("middle", flush=True)
        time.sleep(60)


if __name__ == "__main__":
    DefaultImpl.create_table = stop_at_events
    upgrade(sys.argv[1])
