"""What type checkers are told of answers; `nox -s types` checks this file."""

from __future__ import annotations

from typing import assert_type

from pydantic import BaseModel, JsonValue

from alpineagents import Agent, Loop, State, loop, waiting_for_user


class Peak(BaseModel):
    """The shape of an answer."""

    name: str
    meters: int


@loop(until=waiting_for_user, limit=10)
async def careful(agent: Agent, state: State) -> None:
    """A turn of one's own, whatever the Agent gives back."""
    await agent.think(state)


async def answers(plain: Agent, state: State) -> None:
    """An answer is JSON, or an instance of what `output` names; None where the run stopped before."""
    assert_type(await plain.run("How high?"), JsonValue)
    shaped = Agent("gpt-5", output=Peak, loop=careful)
    assert_type(await shaped.run("How high?"), Peak | None)
    assert_type(await shaped.resume("peaks"), Peak | None)
    assert_type(shaped.run_sync("How high?"), Peak | None)
    assert_type(await plain.ask(state, "How high?"), str)
    assert_type(await plain.ask(state, "How high?", returns=int), int)
    assert_type(careful, Loop)
