"""A program with an Agent at a terminal: `python -m tests.terminal.program SCENE`."""

from __future__ import annotations

import sys
from typing import Any

import anyio

from alpineagents import (
    Agent,
    ConfigError,
    Message,
    ProviderError,
    Reply,
    Request,
    SQLStore,
    State,
    Terminal,
    ToolContext,
    Usage,
    tool,
)
from alpineagents.approvals import pending_approvals
from alpineagents.testing import FakeModel, tool_call


@tool(needs_approval=True)
def pay(amount: int, to: str = "Ada") -> str:
    """Pay an amount."""
    return f"paid {amount}"


@tool
def climb(peak: str, context: ToolContext) -> str:
    """Climb, until Enter is pressed."""
    context.report(3, total=10, message="upper hut")
    sys.stdin.readline()
    return "on top"


def spent(text: str) -> Reply:
    """A reply that cost something."""
    usage = Usage(input_tokens=1200, output_tokens=30, cost_usd=0.0042, requests=1)
    return Reply(message=Message(role="assistant", content=text), usage=usage, stop_reason="end", model="fake")


async def think_until_enter(_request: Request) -> Any:
    """Reply once Enter was pressed."""
    await anyio.to_thread.run_sync(sys.stdin.readline)
    return tool_call("climb", peak="Eiger")


def agent(terminal: Terminal, *replies: Any, **settings: Any) -> Agent:
    return Agent(FakeModel(list(replies)), tools=[pay, climb], reporter=terminal, human=terminal, **settings)


def loud() -> Terminal:
    return Terminal(quiet=False)


async def decided_elsewhere(terminal: Terminal) -> object:
    """Run, and let somebody else decide while the person is asked."""
    store = SQLStore("bills.db")
    said: list[object] = []
    state = State(id="s", messages=[Message.user("Pay")])

    async def run() -> None:
        said.append(await agent(terminal, tool_call("pay", amount=5), "Paid.", store=store, lease=0.4).run(state))

    async with store, anyio.create_task_group() as group:
        group.start_soon(run)
        while not (waiting := pending_approvals(state)) or state.unsaved:
            await anyio.sleep(0.01)
        await store.approve("s", waiting[0].call_id, by="Bob")
    return said[0]


def main(scene: str) -> None:
    """Play a scene."""
    terminal = Terminal(name="Ada")
    match scene:
        case "words":
            agent(terminal, "Good \x1b]0;owned\x07day.", store=None).run_sync("Hello")
        case "loud":
            print(agent(loud(), [tool_call("nothing")], "red \x1b[31m.").run_sync("Hello"))
        case "quiet":
            print("answer:", agent(terminal, [tool_call("nothing")], "Good day.").run_sync("Hello"))
        case "spinner":
            print(agent(terminal, think_until_enter, "Done.").run_sync("Go"))
        case "fails":
            try:
                agent(terminal, ProviderError("overloaded")).run_sync("Go")
            except ProviderError:
                print("the run failed")
        case "approve":
            said = agent(terminal, ["I pay. ", tool_call("pay", amount=5, to="a\u202eb\x1b[2J")], "Paid.").run_sync(
                "Pay"
            )
            print("ran:", said)
        case "deny":
            state = State(messages=[Message.user("Pay")])
            agent(terminal, tool_call("pay", amount=82000), "I see.").run_sync(state)
            print("told:", state.messages[2].tool_results[0].text)
        case "always":
            agent(terminal, tool_call("pay", amount=1), tool_call("pay", amount=2), "Both.").run_sync("Pay")
        case "waiting":
            store = SQLStore("bills.db")
            try:
                anyio.run(agent(terminal, tool_call("pay", amount=5), store=store).run, "Pay")
            finally:
                print("waits:", [info.status for info in store.list_sync()])
        case "elsewhere":
            print("ran:", anyio.run(decided_elsewhere, terminal))
        case "streamless":
            sys.stdin = sys.stdout = sys.stderr = None
            human = Terminal(quiet=False)
            said = agent(human, "Good day.").run_sync("Hello")
            sys.stdout = sys.__stdout__
            print(said, human.at_hand)
        case "nobody":
            try:
                agent(terminal, tool_call("pay", amount=5)).run_sync("Pay")
            except ConfigError as error:
                print(error)
        case "ask":
            print("got:", anyio.run(agent(terminal).ask_human, State(), "Which hut?"))
        case "cost":
            agent(terminal, spent("Done.")).run_sync("Go")
        case "deaf":
            said = agent(loud(), [tool_call("nothing")], "word " * 50_000).run_sync("Go")
            print("ended with", len(str(said)), file=sys.stderr)


if __name__ == "__main__":
    main(sys.argv[1])
