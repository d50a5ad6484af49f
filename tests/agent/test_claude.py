"""Runs with Claude: the whole loop against a server that speaks its API, judged by Anthropic's own types."""

from __future__ import annotations

import signal
from pathlib import Path
from typing import Any

import pytest

from alpineagents import (
    Agent,
    Anthropic,
    Delta,
    Image,
    Message,
    ModelFailed,
    ModelReplied,
    OpenAICompatible,
    ProviderError,
    RawBlock,
    SQLStore,
    State,
    StateBusyError,
    ToolError,
    tool,
)
from tests.agent.parts import of, results
from tests.agent.processes import run
from tests.models.judge import check_request
from tests.servers import openai_server
from tests.servers.anthropic_server import (
    AnthropicServer,
    begins,
    overloaded,
    redacted,
    replies,
    says,
    status,
    text,
    thinking,
    use,
)
from tests.servers.openai_server import OpenAIServer, Step

PNG = Image.from_bytes(b"\x89PNG", "image/png")


@tool(read_only=True)
async def photo(at: str) -> Image:
    """Take a photo."""
    return PNG


@tool(read_only=True)
async def weigh(what: str) -> str:
    """Weigh something."""
    if what == "air":
        raise ToolError("too light")
    return f"{what}: 7 kg"


def claude_at(server: OpenAIServer, model: str = "claude-sonnet-5-5", **options: Any) -> Anthropic:
    """Return Claude at the test server."""
    return Anthropic(model, **{"base_url": server.base_url, "api_key": "key-1234567890", "max_retries": 0, **options})


def judge(server: OpenAIServer) -> None:
    """Check that all that was sent could be sent to Anthropic."""
    for body in server.bodies:
        check_request(body)


def thoughts(body: Any) -> list[Any]:
    """Return the thinking in a body."""
    blocks = [block for message in body["messages"] for block in message["content"]]
    return [block for block in blocks if "thinking" in block["type"]]


@pytest.mark.asyncio_only
async def test_the_whole_loop(tmp_path: Path) -> None:
    """Thinking, parallel calls, an image, an error, and the answer; saved, streamed, and fit for the API each time."""
    asked = replies(
        thinking("Two ", "things.", signature="s1"),
        redacted("r1"),
        text("I look."),
        use("photo", {"at": "summit"}, id="a"),
        use("weigh", {"what": "rock"}, id="b"),
        use("weigh", {"what": "air"}, id="c"),
    )
    again = replies(thinking("One more.", signature="s2"), use("weigh", '{"what": ', id="d"))

    with AnthropicServer(asked, again, says("It is ", "done.")) as server:
        async with SQLStore(str(tmp_path / "agents.db")) as store:
            agent = Agent(claude_at(server), system="Be brief.", tools=[photo, weigh], store=store)
            async with agent.stream("Look and weigh", id="s") as stream:
                items = [item async for item in stream]
            await agent.aclose()
            state = await store.load("s")

    assert stream.answer == state.answer == "It is done."
    judge(server)
    told = server.bodies[1]["messages"][2]["content"]
    assert [block["tool_use_id"] for block in told] == ["a", "b", "c"]
    assert told[0]["content"][0]["source"] == {"type": "base64", "media_type": "image/png", "data": PNG.data}
    assert told[1]["content"] == [{"type": "text", "text": "rock: 7 kg"}]
    assert (told[2]["is_error"], told[2]["content"][0]["text"]) == (True, "too light")
    assert server.bodies[2]["messages"][4]["content"][0]["is_error"] is True
    first = {"type": "thinking", "thinking": "Two things.", "signature": "s1"}
    second = {"type": "thinking", "thinking": "One more.", "signature": "s2"}
    hidden = {"type": "redacted_thinking", "data": "r1"}
    assert [thoughts(body) for body in server.bodies] == [[], [first, hidden], [first, hidden, second]]
    assert state.usage.requests == 3
    assert state.usage.cache_read_tokens == 90
    kinds = [item.kind for item in items if isinstance(item, Delta)]
    assert {"thinking", "text", "tool_args"} == set(kinds)


@pytest.mark.asyncio_only
async def test_thinking_stands_in_the_history_with_its_provider(tmp_path: Path) -> None:
    """The block is stored as it came, and loads as it was."""
    with AnthropicServer(replies(thinking("Hm.", signature="a+/="), text("Yes."))) as server:
        async with SQLStore(str(tmp_path / "agents.db")) as store:
            agent = Agent(claude_at(server), store=store)
            await agent.run("Well?", id="s")
            await agent.aclose()
            state = await store.load("s")

    (reply,) = of(state, ModelReplied)
    assert reply.message.content[0] == RawBlock(
        provider="anthropic", data={"type": "thinking", "thinking": "Hm.", "signature": "a+/="}
    )


@pytest.mark.parametrize("moment", ["pay", "delta"])
async def test_thinking_survives_a_kill(moment: str, tmp_path: Path) -> None:
    """A process dies in a tool, or while a reply arrives; the next one sends the thinking back as it came."""
    url = f"sqlite:///{tmp_path / 'agents.db'}"
    asks = replies(thinking("Pay.", signature="s1"), use("look", {}, id="a"), use("pay", {"to": "Ada"}, id="b"))
    with AnthropicServer() as server:
        if moment == "pay":
            server.add(asks, says("Checked."))
        else:
            server.add(asks, begins("It is").then(Step.STALL), says("Checked."))
        died = run("claude.py", url, server.base_url, moment)
        for _ in range(20):
            ended = run("claude.py", url, server.base_url, "never")
            if StateBusyError.__name__ not in ended.stderr:
                break  # Until then, the lease of the process that died is not over.

    assert died.returncode == -signal.SIGKILL, died.stderr
    assert (ended.returncode, ended.stdout) == (0, "Checked.\n"), ended.stderr
    judge(server)
    last = server.bodies[-1]
    assert thoughts(last) == [{"type": "thinking", "thinking": "Pay.", "signature": "s1"}]
    given = last["messages"][2]["content"]
    assert [block["tool_use_id"] for block in given] == ["a", "b"]
    assert ["is_error" in block for block in given] == [False, moment == "pay"]


async def test_a_conversation_moves_between_providers() -> None:
    """What one provider's model wrote for itself is not sent to the other, and its calls and words are."""
    chat = OpenAIServer(openai_server.calls(("weigh", {"what": "rock"})), openai_server.says("7 kg."))
    asks = replies(thinking("Hm.", signature="s1"), use("weigh", {"what": "ice"}, id="a"))
    claude = AnthropicServer(asks, says("Also 7 kg."), says("Sure."))
    with chat, claude:
        state = State(messages=[Message.user("Weigh a rock")])
        other = Agent(OpenAICompatible("gpt", base_url=chat.base_url, api_key=""), tools=[weigh])
        agent = Agent(claude_at(claude, thinking="adaptive"), tools=[weigh])

        await other.run(state)
        state.add_message(Message.user("And ice?"))
        await agent.run(state)
        state.add_message(Message.user("Sure?"))
        chat.add(openai_server.says("Yes."))
        await other.run(state)
        state.add_message(Message.user("Really?"))
        await agent.run(state)
        await agent.aclose()
        await other.aclose()

    judge(claude)
    assert results(state) == ["rock: 7 kg", "ice: 7 kg"]
    assert "s1" not in str(chat.bodies)
    assert [message["role"] for message in chat.bodies[-1]["messages"]][-4:] == [
        "assistant",
        "tool",
        "assistant",
        "user",
    ]
    assert thoughts(claude.bodies[0]) == []
    assert [block["signature"] for block in thoughts(claude.bodies[-1])] == ["s1"]


async def test_results_stay_with_their_calls_where_ids_are_repeated() -> None:
    """A server that gives each call the same id, in one turn and over turns, gets each result for its own call."""
    with AnthropicServer(
        replies(use("weigh", {"what": "rock"}, id="x"), use("weigh", {"what": "ice"}, id="x")),
        replies(use("weigh", {"what": "snow"}, id="x")),
        says("Done."),
    ) as server:
        agent = Agent(claude_at(server), tools=[weigh])
        state = State(messages=[Message.user("Weigh")])
        await agent.run(state)
        await agent.aclose()

    judge(server)
    messages = server.bodies[-1]["messages"]
    asked = {
        block["id"]: block["input"]["what"] for message in messages for block in message["content"] if "id" in block
    }
    told = {
        block["tool_use_id"]: block["content"][0]["text"]
        for message in messages
        for block in message["content"]
        if "tool_use_id" in block
    }
    assert {call: f"{what}: 7 kg" for call, what in asked.items()} == told
    assert list(asked.values()) == ["rock", "ice", "snow"]


@pytest.mark.asyncio_only
async def test_usage_counts_each_request_once(tmp_path: Path) -> None:
    """What failed requests took counts too, a pause counts all its parts, and a loaded State has the same sum."""
    search = use("web_search", {}, id="s", kind="server_tool_use")
    found = {"type": "web_search_tool_result", "tool_use_id": "s", "content": []}
    with AnthropicServer(
        replies(search, found, stop_reason="pause_turn"),
        says("One."),
        status(400, "invalid_request_error"),
        begins("Tw").then(Step.DROP),
        says("So far", stop_reason="pause_turn"),
        overloaded(),
        says("Two."),
    ) as server:
        async with SQLStore(str(tmp_path / "agents.db")) as store:
            agent = Agent(claude_at(server), store=store)
            await agent.run("One?", id="s")
            for _ in range(3):
                with pytest.raises(ProviderError):
                    await agent.resume("s", "Two?")
            assert await agent.resume("s", "Two?") == "Two."
            await agent.aclose()
            state = await store.load("s")

    assert [event.partial for event in of(state, ModelFailed)] == ["", "Tw", "So far"]
    assert [event.usage.input_tokens for event in of(state, ModelFailed)] == [0, 60, 60]
    assert state.usage.requests == len(server.requests) == 7
    assert (state.usage.input_tokens, state.usage.output_tokens) == (300, 61)


@pytest.mark.asyncio_only
async def test_no_secret_is_stored(tmp_path: Path) -> None:
    """An API that quotes the key in its error leaves none of it in the database."""
    with AnthropicServer(status(401, "authentication_error", "key-1234567890 is wrong"), overloaded()) as server:
        async with SQLStore(str(tmp_path / "agents.db")) as store:
            agent = Agent(claude_at(server), store=store)
            with pytest.raises(Exception, match="was refused"):
                await agent.run("Hi", id="s")
            await agent.aclose()

    assert b"key-1234567890" not in (tmp_path / "agents.db").read_bytes()
