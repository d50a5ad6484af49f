"""
The database did what it was asked, and its reply was lost: the call settles by itself, at whichever reply it was.

Each test is a sweep. Its work is done once without a failure, then again and again, each time with the next reply
lost, until the work is over before there is such a reply.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import suppress

import pytest
from sqlalchemy import text
from sqlalchemy.exc import DBAPIError

from alpineagents import (
    Agent,
    Message,
    SQLStore,
    State,
    StateConflictError,
    StateExistsError,
    StateNotFoundError,
    StoreUnavailableError,
    ToolContext,
    default_loop,
    loop,
    tool,
    waiting_for_user,
)
from alpineagents.events import AgentInfo, RunStarted, ToolFinished
from alpineagents.models.base import Delta
from alpineagents.runner import Item
from alpineagents.stores.header import Lease, header_of
from alpineagents.testing import FakeModel, tool_call
from tests.failures.histories import check_saved, connections_out, end_leases, new_state, query, texts
from tests.failures.proxy import Proxy

MOST_REPLIES = 200
"""A sweep that goes on for longer does not end."""

REFUSED = (StateConflictError, StateExistsError)
"""How a store says that it has more of a State than is known here: of one that goes on, and of a new one."""


async def sweep(proxy: Proxy, work: Callable[[str], Awaitable[None]], *, then_refuse: bool = False) -> int:
    """
    Do the work on a new State each time, with the first, the second, … reply lost.

    Returns:
        How many replies there were to lose.
    """
    await work("whole")
    for number in range(1, MOST_REPLIES):
        proxy.lose_reply(number, then_refuse=then_refuse)
        await work(f"lost-{number}")
        proxy.lose_nothing()
        if not proxy.lost:
            return number - 1
    raise AssertionError(f"there were still replies to lose after {MOST_REPLIES}")


async def test_a_save_whose_reply_is_lost_is_stored_once(proxy: Proxy, store: SQLStore, direct: SQLStore) -> None:
    """Of a new State and of one that goes on: the second try finds what the first has written."""

    async def work(id: str) -> None:
        state = new_state(id, "one", "two")
        assert await store.save(state) == 2
        state.add_message(Message.user("three"))
        assert await store.save(state) == 3
        await check_saved(direct, state)

    assert await sweep(proxy, work) >= 2


async def test_a_post_whose_reply_is_lost_is_stored_once(proxy: Proxy, store: SQLStore, direct: SQLStore) -> None:
    """Nobody gets the same message twice."""

    async def work(id: str) -> None:
        await direct.save(new_state(id, "one"))
        assert await store.post(id, Message.user("two")) == 2
        assert await texts(direct, id) == ["one", "two"]

    assert await sweep(proxy, work) >= 2


async def test_an_append_without_an_id_is_stored_once(proxy: Proxy, store: SQLStore, direct: SQLStore) -> None:
    """Who calls the primitive need not know how a lost reply is settled."""

    async def work(id: str) -> None:
        state = new_state(id, "one", "two")
        header = header_of(state.snapshot())
        assert await store.append(id, state.unsaved, expected=0, header=header) == 2
        assert await texts(direct, id) == ["one", "two"]

    assert await sweep(proxy, work) >= 1


async def test_a_load_whose_reply_is_lost_reads_on(proxy: Proxy, store: SQLStore, direct: SQLStore) -> None:
    """No Event is missing from it, and none is in it twice."""
    state = new_state("long", *(f"message {number}" for number in range(1_500)))
    await direct.save(state)

    async def work(_id: str) -> None:
        assert (await store.load("long")).snapshot() == state.snapshot()

    # More than one, since a history of this length has more than one page.
    assert await sweep(proxy, work) >= 2


async def test_a_renewal_whose_reply_is_lost_holds_the_state(proxy: Proxy, store: SQLStore, direct: SQLStore) -> None:
    """The run learns that it still owns its State."""

    async def work(id: str) -> None:
        state = new_state(id)
        state.run_id = "r1"
        state.record(RunStarted, agent=AgentInfo(model="m"))
        await direct.save_with(state, Lease("r1", 60))
        before = (await direct.info(id)).lease_until
        assert await store.renew(id, Lease("r1", 600))
        after = (await direct.info(id)).lease_until
        assert before is not None
        assert after is not None
        assert (after - before).total_seconds() > 500

    assert await sweep(proxy, work) >= 1


async def test_a_delete_whose_reply_is_lost_is_no_error(proxy: Proxy, store: SQLStore, direct: SQLStore) -> None:
    """The second try finds nothing, because the first has deleted it."""

    async def work(id: str) -> None:
        await direct.save(new_state(id))
        await store.delete(id)
        assert not await direct.exists(id)

    assert await sweep(proxy, work) >= 1


async def test_a_delete_of_what_never_was_is_an_error_all_the_same(proxy: Proxy, store: SQLStore) -> None:
    """Without a failure in between, nothing explains that it is not there."""
    with pytest.raises(StateNotFoundError):
        await store.delete("nobody")


async def test_a_list_whose_reply_is_lost_is_whole(proxy: Proxy, store: SQLStore, direct: SQLStore) -> None:
    """`list` and `info` only read, so they are tried again."""
    await direct.save(new_state("one"))

    async def work(_id: str) -> None:
        assert [info.id for info in await store.list()] == ["one"]
        assert (await store.info("one")).revision == 1

    assert await sweep(proxy, work) >= 2


class Office:
    """What the tools of a run have done, outside of the database."""

    def __init__(self) -> None:
        self.done: list[str] = []

    def agent(self, store: SQLStore, replies: FakeModel | None = None) -> Agent:
        @tool
        async def send(letter: str) -> str:
            """Send a letter."""
            self.done.append(letter)
            return f"sent {letter}"

        calls = [tool_call("send", letter=letter) for letter in "abc"]
        return Agent(replies or FakeModel([calls, "All sent."]), tools=[send], store=store)


async def test_a_run_goes_on_whichever_reply_is_lost(proxy: Proxy, store: SQLStore, direct: SQLStore) -> None:
    """Three calls in parallel are made once each, and every Event that was handed out is stored once."""

    async def work(id: str) -> None:
        office = Office()
        told: list[Item] = []
        state = new_state(id, "Send all.")
        async with office.agent(store).stream(state) as items:
            told.extend([item async for item in items if not isinstance(item, Delta)])

        assert sorted(office.done) == ["a", "b", "c"]
        assert state.answer == "All sent."
        assert told[-1].kind == "run_stopped"
        assert told == list(state.history)
        await check_saved(direct, state)

    assert await sweep(proxy, work) >= 6


async def run_until_lost(
    proxy: Proxy, agent: Agent, state: State, told: list[Item] | None = None
) -> StoreUnavailableError | None:
    """Run, let the database come back after the run has ended, and return what the run failed with."""
    failure = None
    try:
        await agent.copy(reporter=[].append if told is None else told.append).run(state)
    except StoreUnavailableError as error:
        failure = error
    proxy.lose_nothing()
    if proxy.lost:
        await proxy.accept()
    return failure


async def test_what_was_handed_out_is_stored(proxy: Proxy, hasty: SQLStore, direct: SQLStore) -> None:
    """The database stays away from the n-th reply on; nobody has seen an Event that is not in it afterwards."""

    async def work(id: str) -> None:
        told: list[Item] = []
        failure = await run_until_lost(proxy, Office().agent(hasty), new_state(id, "Send all."), told)

        stored = list((await direct.load(id)).history) if await direct.exists(id) else []
        handed_out = [item for item in told if not isinstance(item, Delta)]
        assert stored[: len(handed_out)] == handed_out
        assert (failure is not None) == proxy.lost

    assert await sweep(proxy, work, then_refuse=True) >= 6


async def test_a_run_that_lost_its_database_can_be_saved_later(
    proxy: Proxy, hasty: SQLStore, direct: SQLStore, migrated_postgres_url: str
) -> None:
    """
    The State keeps what is not saved, and a later save writes it once.

    Only where the claim itself has landed unseen is the State to be loaded again: then all that it has is stored.
    """

    async def work(id: str) -> None:
        office = Office()
        state = new_state(id, "Send all.")
        await run_until_lost(proxy, office.agent(hasty), state)

        try:
            await hasty.save(state)
        except REFUSED:
            kept, state = list(state.history), await direct.load(id)
            assert list(state.history) == [*kept, state.history[-1]]
            assert state.history[-1].kind == "run_started"
        await check_saved(direct, state)

        await end_leases(migrated_postgres_url)
        await office.agent(hasty, FakeModel(["On it."] * 3)).resume(id, "And now?")
        assert len(office.done) == len(set(office.done))
        await check_saved(direct, await direct.load(id))

    assert await sweep(proxy, work, then_refuse=True) >= 6


async def test_a_run_that_lost_its_database_is_resumed_elsewhere(
    proxy: Proxy, hasty: SQLStore, direct: SQLStore, migrated_postgres_url: str
) -> None:
    """The process is gone and only what is stored counts: every letter is sent once or reported, none is sent twice."""

    async def work(id: str) -> None:
        office = Office()
        await run_until_lost(proxy, office.agent(hasty), new_state(id, "Send all."))
        if not await direct.exists(id):
            assert office.done == []
            return
        await end_leases(migrated_postgres_url)

        asked = "model_replied" in [event.kind for event in (await direct.load(id)).history]
        answers = FakeModel(["Done.", "Done."]) if asked else None
        await office.agent(direct, answers).resume(id, "Go on.")

        assert len(office.done) == len(set(office.done))
        loaded = await direct.load(id)
        assert loaded.answer in ("Done.", "All sent.")
        await check_saved(direct, loaded)

    assert await sweep(proxy, work, then_refuse=True) >= 6


async def test_the_end_of_a_failed_run_is_saved_as_soon_as_the_database_is_back(
    proxy: Proxy, hasty: SQLStore, direct: SQLStore
) -> None:
    """The append that failed has landed unseen; what was added since goes down with the next one all the same."""

    @tool
    async def work() -> str:
        """Work."""
        proxy.lose_reply(1, then_refuse=True)
        return "worked"

    @loop(until=waiting_for_user, limit=5)
    async def turn(agent: Agent, state: State) -> None:
        try:
            await default_loop.turn(agent, state)
        except StoreUnavailableError:
            await proxy.accept()
            raise

    state = new_state("s", "Work.")
    with pytest.raises(StoreUnavailableError):
        await Agent(FakeModel([tool_call("work"), "Worked."]), tools=[work], loop=turn, store=hasty).run(state)

    assert state.history[-1].kind == "run_stopped"
    await check_saved(direct, state)
    assert (await direct.info("s")).lease_until is None


def payer(store: SQLStore, replies: FakeModel | None = None) -> Agent:
    """Return an Agent whose one tool pays inside the transaction of its result."""

    @tool(transaction=True)
    async def pay(amount: int, ctx: ToolContext) -> str:
        """Pay an amount."""
        assert ctx.connection is not None
        await ctx.connection.execute(
            text("INSERT INTO payments (state_id, amount) VALUES (:state_id, :amount)"),
            {"state_id": ctx.state_id, "amount": amount},
        )
        return f"paid {amount}"

    return Agent(replies or FakeModel([tool_call("pay", amount=4), "Paid."]), tools=[pay], store=store)


async def payments(url: str, id: str) -> int:
    """Return how often was paid for a State."""
    rows = await query(url, "SELECT count(*) FROM payments WHERE state_id = :id", id=id)
    return int(rows[0][0])


@pytest.fixture
async def bank(migrated_postgres_url: str) -> str:
    """A database with a table of the app's own."""
    await query(migrated_postgres_url, "CREATE TABLE payments (state_id TEXT, amount INTEGER)")
    return migrated_postgres_url


async def test_a_transaction_tool_pays_once_whichever_reply_is_lost(
    bank: str, proxy: Proxy, store: SQLStore, direct: SQLStore
) -> None:
    """The run ends well, or fails; either way the payment and its result are both stored, or neither is."""

    async def work(id: str) -> None:
        state = new_state(id, "Pay 4.")
        with suppress(StoreUnavailableError, DBAPIError):
            await payer(store).run(state)
        await check_saved(direct, state)

        assert await payments(bank, id) == await paid(direct, id)
        if state.answer != "Paid.":
            await payer(store, FakeModel([tool_call("pay", amount=4), "Paid."])).resume(id, "Try again.")
        assert await payments(bank, id) == 1
        assert connections_out(store) == 0

    assert await sweep(proxy, work) >= 8


async def test_a_transaction_tool_pays_once_although_the_database_goes_away(
    bank: str, proxy: Proxy, hasty: SQLStore, direct: SQLStore
) -> None:
    """Nobody can say at first whether the commit happened; once the database is back, what is stored does."""

    async def work(id: str) -> None:
        with suppress(DBAPIError):
            await run_until_lost(proxy, payer(hasty), new_state(id, "Pay 4."))
        if proxy.lost:
            await proxy.accept()

        assert await payments(bank, id) == await paid(direct, id)

    assert await sweep(proxy, work, then_refuse=True) >= 8


async def test_a_state_does_not_say_what_its_store_does_not(
    bank: str, proxy: Proxy, hasty: SQLStore, direct: SQLStore
) -> None:
    """A later save writes what the State says of the payment, or is refused because the store knows better."""

    async def work(id: str) -> None:
        state = new_state(id, "Pay 4.")
        with suppress(DBAPIError):
            await run_until_lost(proxy, payer(hasty), state)
        if proxy.lost:
            await proxy.accept()

        with suppress(*REFUSED):
            await hasty.save(state)
            await check_saved(direct, state)
        assert await payments(bank, id) == await paid(direct, id)

    assert await sweep(proxy, work, then_refuse=True) >= 8


async def paid(store: SQLStore, id: str) -> int:
    """Return how many payments a State has a result of."""
    if not await store.exists(id):
        return 0
    history = (await store.load(id)).history
    return sum(isinstance(event, ToolFinished) and event.outcome == "ok" for event in history)
