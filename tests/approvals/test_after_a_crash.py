"""A call that was allowed, started, and lost with its process: what was said of it counts no further than it did."""

from __future__ import annotations

from typing import Any

import pytest

from alpineagents import Agent, ApprovalDecided, ApprovalRequested, Store, Tool, ToolStarted, tool
from alpineagents.testing import FakeModel, tool_call
from tests.agent.parts import of, outcomes

paid: list[str] = []


@pytest.fixture(autouse=True)
def nothing_paid() -> None:
    paid.clear()


@tool(idempotent=True, needs_approval=True)
async def pay(amount: int) -> str:
    """Pay an amount."""
    paid.append(f"{amount}")
    return "paid"


@tool(name="pay", idempotent=True, needs_approval=True)
async def pay_in(amount: int, currency: str = "CHF") -> str:
    """Pay an amount in a currency."""
    paid.append(f"{amount} {currency}")
    return "paid"


def agent_on(store: Store, *replies: Any, tools: tuple[Tool, ...] = (pay,)) -> Agent:
    return Agent(FakeModel(list(replies)), tools=tools, store=store)


async def approve(store: Store, id: str, **how: Any) -> None:
    (call,) = (await store.load(id)).pending_calls
    await store.approve(id, call.id, by="Ada", **how)


async def left_behind(store: Store, id: str, event: type[ApprovalDecided] | type[ToolStarted] = ToolStarted) -> str:
    """Return the id of the State as it is where the process of a run died behind the last Event of a kind."""
    last = of(await store.load(id), event)[-1]
    left = (await store.load(id, last.revision)).fork()
    left.parent_id = None  # it stands for the State itself, whose calls are its own
    await store.save(left)
    paid.clear()
    return left.id


async def approved_and_dead(store: Store, **how: Any) -> str:
    assert await agent_on(store, tool_call("pay", amount=5)).run("Pay", id="s") is None
    await approve(store, "s", **how)
    await agent_on(store, "Paid.").resume("s")
    return await left_behind(store, "s")


async def test_an_approved_call_that_died_is_made_again_unasked(store: Store) -> None:
    """It is the one that was approved; a better docstring makes it no other."""
    left = await approved_and_dead(store, args={"amount": 4})

    tools = (pay.copy(description="Pay an amount, in francs."),)
    with pytest.warns(UserWarning, match="changed pay"):
        assert await agent_on(store, "Paid.", tools=tools).resume(left) == "Paid."

    assert paid == ["4"]


async def test_an_approved_call_that_died_does_not_go_to_a_tool_of_another_signature(store: Store) -> None:
    """A parameter that came later was not shown, so a person is asked again, as without a crash."""
    left = await approved_and_dead(store)

    with pytest.warns(UserWarning, match="changed pay"):
        assert await agent_on(store, tools=(pay_in,)).resume(left) is None

    assert (paid, (await store.load(left)).status) == ([], "waiting")
    await approve(store, left)
    assert await agent_on(store, "Paid.", tools=(pay_in,)).resume(left) == "Paid."
    assert (paid, outcomes(await store.load(left))) == (["5 CHF"], {"pay": "ok"})


async def test_what_is_allowed_in_a_state_counts_for_the_tool_as_it_was_after_a_crash(store: Store) -> None:
    """Nobody was asked about the call that died, and nobody has allowed the tool as it is now."""
    assert await agent_on(store, tool_call("pay", amount=1)).run("Pay", id="s") is None
    await approve(store, "s", always="state")
    await agent_on(store, tool_call("pay", amount=2), "Paid.").resume("s")
    left = await left_behind(store, "s")

    with pytest.warns(UserWarning, match="changed pay"):
        assert await agent_on(store, tools=(pay_in,)).resume(left) is None

    assert paid == []


@pytest.mark.parametrize("event", [ApprovalDecided, ToolStarted])
async def test_what_is_revoked_is_asked_about_again_after_a_crash(
    store: Store, event: type[ApprovalDecided] | type[ToolStarted]
) -> None:
    """Whether the process died in front of the call that was allowed in all States, or in it."""
    assert await agent_on(store, tool_call("pay", amount=1)).run("Pay", id="s") is None
    await approve(store, "s", always="all")
    assert await agent_on(store, tool_call("pay", amount=2), "Paid.").run("Pay", id="t") == "Paid."
    kept, revoked = await left_behind(store, "t", event), await left_behind(store, "t", event)

    assert await agent_on(store, "Paid.").resume(kept) == "Paid."
    await store.revoke("pay", by="Bea")
    assert await agent_on(store).resume(revoked) is None

    assert paid == ["2"]
    assert len(of(await store.load(revoked), ApprovalRequested)) == 1
