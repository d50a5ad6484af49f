"""What is asked of every real API."""

from __future__ import annotations

from alpineagents import Agent, Message, Model, State, tool


@tool(read_only=True)
def height(of: str) -> str:
    """Tell the height of a mountain in metres."""
    return {"Eiger": "3967", "Mönch": "4110"}.get(of, "unknown")


async def add_heights(model: Model) -> State:
    """Have the model call a tool, read the result, answer, and go on; return the State behind it."""
    agent = Agent(model, system="Use the tool for each mountain.", tools=[height])
    state = State(
        messages=[Message.user("How high are the Eiger and the Mönch, together? Answer with the number only.")]
    )

    assert "8077" in str(await agent.run(state)).replace(",", "")
    state.add_message(Message.user("And twice that?"))
    assert "16154" in str(await agent.run(state)).replace(",", "")
    return state
