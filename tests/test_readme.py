"""The README's programs run as they stand there, one after the other, as a reader would run them."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.servers.anthropic_server import AnthropicServer, says

README = Path(__file__).parents[1] / "README.md"

# The chat asks a person; this one says two things and goes away.
PRELUDE = """
import builtins, sys

said = iter(["Good morning", "And good night"])

def hear(prompt):
    try:
        return next(said)
    except StopIteration:
        raise SystemExit("the person has gone") from None

builtins.input = hear
"""

CLIENT = """
import httpx

async def visit():
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://test") as client:
        for text in ("first", "second"):
            print("web:", (await client.post("/chats/visitor", params={"text": text})).json())
    print("web history:", [message.text for message in (await agent.store.load("visitor")).messages])
    await agent.store.aclose()

asyncio.run(visit())
"""


def blocks() -> list[str]:
    return re.findall(r"^```python\n(.*?)^```$", README.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)


def script() -> str:
    """Return all blocks as one program; the chat never ends by itself, so its end is caught."""
    parts = [PRELUDE]
    for block in blocks():
        if "input(" in block:
            body = "".join(f"    {line}\n" for line in block.splitlines())
            parts.append(f"try:\n{body}except SystemExit as gone:\n    print(gone)\n")
        else:
            parts.append(block)
    return "\n".join([*parts, CLIENT])


@pytest.mark.timeout(120)
def test_every_block_of_the_readme_runs(tmp_path: Path, migrated_postgres_url: str) -> None:
    """Copied in order into one program, the blocks print what the text around them promises."""
    with AnthropicServer(says("Hello to you"), says("Sleep well")) as server:
        ended = subprocess.run(
            [sys.executable, "-W", "error", "-c", script()],
            cwd=tmp_path,
            env=os.environ
            | {
                "DATABASE_URL": migrated_postgres_url,
                "ANTHROPIC_API_KEY": "test-key",
                "ANTHROPIC_BASE_URL": server.base_url.removesuffix("/v1"),
                "NO_PROXY": "127.0.0.1,localhost",
            },
            capture_output=True,
            text=True,
            timeout=100,
        )

    assert ended.stderr == ""
    assert ended.returncode == 0
    assert ended.stdout.splitlines() == [
        "The Eiger is 3,967 m high.",
        "It is 4,478 m high.",
        "511 m more than the Eiger.",
        "peaks stopped 14 How high is the Matterhorn?",
        "Hello to you",
        "Sleep well",
        "the person has gone",
        (
            "State 'shared' is at revision 2, not at 1: another writer was first. Load it again and repeat the change: "
            "state = await store.load('shared')"
        ),
        "web: You said: first",
        "web: You said: second",
        "web history: ['first', 'You said: first', 'second', 'You said: second']",
    ]


def test_the_readme_has_a_block_for_each_thing_it_promises() -> None:
    """A first program, save, resume, the chat, Postgres and FastAPI: losing one would lose its test as well."""
    assert len(blocks()) == 6
