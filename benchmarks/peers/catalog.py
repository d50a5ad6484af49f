"""Which peers there are, what they need, and what each of them promises."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Database = Literal["SQLite", "Postgres", "files"]


@dataclass(frozen=True)
class Peer:
    """
    A way to keep a conversation.

    Attributes:
        title: as the tables call it.
        program: its program in this folder.
        kind: which of the program's ways.
        database: what it writes to.
        environment: which of ENVIRONMENTS it runs in; None for this project's own.
        promise: what a step that returned is worth, where it is less than here; empty if it is as much.
        rewrites: whether a step writes the whole conversation again.
    """

    title: str
    program: str
    kind: str
    database: Database
    environment: str | None
    promise: str = ""
    rewrites: bool = False

    @property
    def key(self) -> str:
        """Its name in the figures."""
        return f"{self.title}, {self.database}"


ENVIRONMENTS = {
    "alpineagents-0.7.1": ("alpineagents==0.7.1",),
    "aisuite": ("aisuite==0.2.0", "psycopg[binary]==3.3.9"),
    "langgraph": (
        "langgraph==1.2.24",
        "langgraph-checkpoint-sqlite==3.1.2",
        "langgraph-checkpoint-postgres==3.2.0",
        "psycopg[binary]==3.3.9",
        "psycopg-pool==3.3.3",
    ),
    "openai-agents": ("openai-agents[sqlalchemy]==0.24.0", "aiosqlite==0.22.1", "asyncpg==0.32.0"),
    "google-adk": ("google-adk==2.13.0", "sqlalchemy[asyncio]==2.1.9", "aiosqlite==0.22.1", "asyncpg==0.32.0"),
}
"""What is installed for each peer. One environment each: they ask for versions that clash, and one has this name."""

OURS = "alpineagents"
DRIVER = "the driver alone"

NO_CHECK = "no conflict check"
PEERS = (
    Peer(OURS, "run_alpineagents.py", "sqlite", "SQLite", None),
    Peer(DRIVER, "run_raw.py", "sqlite", "SQLite", None),
    Peer(
        "LangGraph, AsyncSqliteSaver", "run_langgraph.py", "sqlite", "SQLite", "langgraph",
        NO_CHECK + "; a checkpoint a superstep", rewrites=True,
    ),
    Peer(
        "LangGraph, DeltaChannel (beta)", "run_langgraph.py", "delta", "SQLite", "langgraph",
        NO_CHECK + "; all messages again every 100th superstep",
    ),
    Peer("OpenAI Agents, SQLiteSession", "run_openai.py", "sqlite", "SQLite", "openai-agents", NO_CHECK),
    Peer("OpenAI Agents, SQLAlchemySession", "run_openai.py", "alchemy", "SQLite", "openai-agents", NO_CHECK),
    Peer("Google ADK, SqliteSessionService", "run_adk.py", "sqlite", "SQLite", "google-adk"),
    Peer("Google ADK, DatabaseSessionService", "run_adk.py", "database", "SQLite", "google-adk"),
    Peer(
        "alpineagents 0.7.1, FileStore", "run_alpineagents_071.py", "files", "files", "alpineagents-0.7.1",
        NO_CHECK + "; one process a State",
    ),
    Peer(
        "aisuite, FileStateStore", "run_aisuite.py", "files", "files", "aisuite",
        "no fsync; its check and its write are two steps; saves once a run", rewrites=True,
    ),
    Peer(OURS, "run_alpineagents.py", "postgres", "Postgres", None),
    Peer(DRIVER, "run_raw.py", "postgres", "Postgres", None),
    Peer(
        "LangGraph, AsyncPostgresSaver", "run_langgraph.py", "postgres", "Postgres", "langgraph",
        NO_CHECK + "; a checkpoint a superstep", rewrites=True,
    ),
    Peer(
        "LangGraph, DeltaChannel (beta)", "run_langgraph.py", "delta-postgres", "Postgres", "langgraph",
        NO_CHECK + "; all messages again every 100th superstep",
    ),
    Peer(
        "OpenAI Agents, SQLAlchemySession", "run_openai.py", "alchemy-postgres", "Postgres", "openai-agents", NO_CHECK
    ),
    Peer("Google ADK, DatabaseSessionService", "run_adk.py", "database-postgres", "Postgres", "google-adk"),
    Peer(
        "aisuite, PostgresStateStore", "run_aisuite.py", "postgres", "Postgres", "aisuite",
        "saves once a run", rewrites=True,
    ),
)  # fmt: skip
