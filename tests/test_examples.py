"""The examples run as they stand, each in a process of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from tests.servers.openai_server import OpenAIServer, says

EXAMPLES = Path(__file__).parents[1] / "examples"

VISIT = """
import asyncio, sys

import httpx

sys.path.insert(0, sys.argv[1])
import web

async def visit():
    async with web.lifespan(web.app):
        transport = httpx.ASGITransport(app=web.app)
        async with httpx.AsyncClient(transport=transport, base_url="http://test") as client:
            print((await client.post("/chats/a", params={"text": "first"})).json())
            print((await client.post("/chats/a/stream", params={"text": "second"})).text)
            print([said["text"] for said in (await client.get("/chats/a")).json()])
            print((await client.get("/chats/none")).status_code)
    await web.agent.aclose()

asyncio.run(visit())
"""


def run(server: OpenAIServer, folder: Path, *arguments: str, said: str = "") -> subprocess.CompletedProcess[str]:
    settings = {
        "EXAMPLE_MODEL": "gpt-test",
        "OPENAI_BASE_URL": server.base_url,
        "OPENAI_API_KEY": "test-key",
        "NO_PROXY": "127.0.0.1",
    }
    kept = {name: value for name, value in os.environ.items() if name != "DATABASE_URL"}
    command = [sys.executable, "-W", "error", *arguments]
    return subprocess.run(
        command, cwd=folder, env=kept | settings, input=said, capture_output=True, text=True, timeout=60
    )


def test_the_chat_remembers(tmp_path: Path) -> None:
    """A second process goes on with what the first one saved."""
    with OpenAIServer(says("Hello."), says("You said Good morning.")) as server:
        first = run(server, tmp_path, str(EXAMPLES / "chat.py"), said="Good morning\n")
        second = run(server, tmp_path, str(EXAMPLES / "chat.py"), "--resume", said="What did I say?\n")

    assert (first.stderr, first.stdout) == ("", "> Hello.\n> \nSaved. Go on with --resume\n")
    assert (second.stderr, second.stdout) == ("", "> You said Good morning.\n> \nSaved. Go on with --resume\n")
    assert [message["content"] for message in server.bodies[1]["messages"][1:]] == [
        "Good morning",
        "Hello.",
        "What did I say?",
    ]


def test_the_web_app_answers_streams_and_shows(tmp_path: Path) -> None:
    """One chat over three routes."""
    with OpenAIServer(says("One."), says("Two.")) as server:
        done = run(server, tmp_path, "-c", VISIT, str(EXAMPLES))

    assert done.stderr == ""
    assert done.stdout.splitlines() == ["One.", "Two.", "['first', 'One.', 'second', 'Two.']", "404"]
