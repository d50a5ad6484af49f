"""A process of its own that holds the write lock of a SQLite file until it is told to let go."""

from __future__ import annotations

import sqlite3
import sys


def main(file: str) -> None:
    database = sqlite3.connect(file, isolation_level=None)
    database.execute("BEGIN IMMEDIATE")
    database.execute("UPDATE agent_states SET parent_id = 'held'")
    print("held", flush=True)
    sys.stdin.readline()
    database.execute("COMMIT")
    print("let go", flush=True)


if __name__ == "__main__":
    main(sys.argv[1])
