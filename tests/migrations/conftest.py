"""What the tests of migrations share: an empty database of each kind, and plain ways to look into it."""

from __future__ import annotations

import io
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from alembic.config import Config
from sqlalchemy.ext.asyncio import AsyncEngine, create_async_engine

from alpineagents.stores.sql.migrate import async_url, migrations_folder


@pytest.fixture(params=["sqlite", "postgres"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """The URL of an empty database."""
    if request.param == "postgres":
        yield request.getfixturevalue("postgres_url")
    else:
        yield f"sqlite:///{tmp_path}/agents.db"


@pytest.fixture
async def engine(url: str) -> AsyncIterator[AsyncEngine]:
    """An engine as an app would make it."""
    engine = create_async_engine(async_url(url))
    yield engine
    await engine.dispose()


@pytest.fixture
def ini(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str | None], Config]:
    """Make the settings that a user's own ini would give."""
    monkeypatch.delenv("ALPINEAGENTS_DATABASE_URL", raising=False)

    def make(url: str | None, **arguments: Any) -> Config:
        file = tmp_path / "user.ini"
        line = "" if url is None else f"sqlalchemy.url = {url.replace('%', '%%')}\n"
        file.write_text(f"[alembic]\nscript_location = {migrations_folder()}\n{line}")
        return Config(file, stdout=io.StringIO(), output_buffer=io.StringIO(), **arguments)

    return make
