"""A store that fails at its n-th append: the error is raised, and what is not saved stays in memory."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from alpineagents import Agent, Message, Request, State, StoreUnavailableError, tool
from alpineagents.testing import FakeModel, tool_call
from tests.agent.parts import Failing, Place, check_saved, complaints, kinds, results

APPENDS = 8
"""Claim, request, reply, starts, two results, request, reply, end; two of them may share one."""


@pytest.fixture
def entered() -> list[str]:
    return []


def agent_on(store: object, entered: list[str]) -> Agent:
    @tool
    async def pay(to: str) -> str:
        """Pay."""
        entered.append(to)
        return f"paid {to}"

    def respond(request: Request) -> object:
        done = any(message.tool_results for message in request.messages)
        return "All is paid." if done else [tool_call("pay", to="Ada"), tool_call("pay", to="Bob")]

    return Agent(FakeModel(respond), tools=[pay], store=store)


@pytest.fixture
async def opened() -> AsyncIterator[list[object]]:
    stores: list[object] = []
    yield stores
    for store in stores:
        await store.aclose()


@pytest.mark.parametrize("at", range(1, APPENDS + 1))
async def test_what_is_not_saved_stays_in_memory_and_a_later_save_writes_it(
    at: int, place: Place, entered: list[str], opened: list[object]
) -> None:
    """The database is away from the n-th append on; then it comes back."""
    failing = Failing(at, times=10**6)
    store = place.open(failing)
    opened.append(store)
    state = State(id="s", messages=[Message.user("Pay both")])

    with pytest.raises(StoreUnavailableError, match="the database is away"):
        await agent_on(store, entered).run(state)

    await check_saved(store, state)
    assert state.unsaved
    failing.times = 0
    await store.save(state)
    assert (await store.load("s")).snapshot() == state.snapshot()
    assert kinds(state)[-1] == ("message_added" if at == 1 else "run_stopped")
    assert complaints(state.messages) == []


@pytest.mark.parametrize("at", range(1, APPENDS + 1))
async def test_a_state_runs_again_after_its_store_was_away(
    at: int, place: Place, entered: list[str], opened: list[object]
) -> None:
    """The same object, once what is unsaved is saved: no payment is made twice without the model's word."""
    failing = Failing(at, times=10**6)
    store = place.open(failing)
    opened.append(store)
    state = State(id="s", messages=[Message.user("Pay both")])
    agent = agent_on(store, entered)
    with pytest.raises(StoreUnavailableError):
        await agent.run(state)
    failing.times = 0

    await store.save(state)
    assert await agent.run(state) == "All is paid."

    assert len(entered) == len(set(entered))
    await check_saved(store, state)
    assert (await store.load("s")).snapshot() == state.snapshot()


@pytest.mark.parametrize("at", range(1, APPENDS + 1))
async def test_one_failure_ends_the_run_and_its_end_is_saved(
    at: int, place: Place, entered: list[str], opened: list[object]
) -> None:
    """Where the database is back at once, the State is given up and says how the run ended."""
    store = place.open(Failing(at))
    opened.append(store)
    state = State(id="s", messages=[Message.user("Pay both")])

    with pytest.raises(StoreUnavailableError):
        await agent_on(store, entered).run(state)

    await check_saved(store, state)
    if at == 1:
        assert kinds(state) == ["message_added"]
    elif state.unsaved:
        # It was the end itself that could not be saved.
        assert [event.kind for event in state.unsaved] == ["run_stopped"]
        assert state.answer == "All is paid."
    else:
        assert kinds(state)[-1] == "run_stopped"
        assert (await store.info("s")).lease_until is None


@pytest.mark.parametrize("at", range(1, APPENDS + 1))
async def test_an_append_whose_acknowledgement_was_lost_is_stored_once(
    at: int, place: Place, entered: list[str], opened: list[object]
) -> None:
    """The append landed and the run was told otherwise: no Event is there twice, and none is missing."""
    store = place.open(Failing(at, landed=True))
    opened.append(store)
    state = State(id="s", messages=[Message.user("Pay both")])

    with pytest.raises(StoreUnavailableError):
        await agent_on(store, entered).run(state)

    await check_saved(store, state)
    if at > 1:
        await store.save(state)
        loaded = await store.load("s")
        assert loaded.snapshot() == state.snapshot()
        assert kinds(loaded).count("run_stopped") == 1
        assert complaints(loaded.messages) == []


@pytest.mark.parametrize("at", range(2, APPENDS + 1))
async def test_the_end_of_a_run_is_saved_behind_a_lost_acknowledgement(
    at: int, place: Place, entered: list[str], opened: list[object]
) -> None:
    """The database is back at once, so nothing waits for a later save, and the State is given up."""
    store = place.open(Failing(at, landed=True))
    opened.append(store)
    state = State(id="s", messages=[Message.user("Pay both")])
    with pytest.raises(StoreUnavailableError):
        await agent_on(store, entered).run(state)

    assert kinds(await store.load("s"))[-1] == "run_stopped"
    assert (await store.info("s")).lease_until is None


async def test_a_claim_whose_acknowledgement_was_lost_can_be_tried_again(
    place: Place, entered: list[str], opened: list[object]
) -> None:
    """The second try does not take the first one's Events for its own."""
    store = place.open(Failing(1, landed=True))
    opened.append(store)
    state = State(id="s", messages=[Message.user("Pay both")])
    agent = agent_on(store, entered)
    with pytest.raises(StoreUnavailableError):
        await agent.run(state)

    try:
        await agent.run(state)
    except Exception:  # noqa: BLE001  # it may be refused; what counts is what it believes afterwards
        await check_saved(store, state)
    else:
        await check_saved(store, state)
        assert results(state) == ["paid Ada", "paid Bob"]
