"""Approvals for all States: a person says it once, whoever runs the next State sees it, and it can be taken back."""

from __future__ import annotations

import logging

import anyio
import pytest

from alpineagents import (
    Agent,
    Allow,
    ApprovalDecided,
    ApprovalError,
    ConfigError,
    DataChanged,
    FileStore,
    MemoryStore,
    StateDamagedError,
    Store,
    tool,
)
from alpineagents.permissions import deny
from alpineagents.stores.standing import STATE_ID
from alpineagents.testing import FakeHuman, FakeModel, tool_call
from tests.agent.parts import at_once, of, outcomes
from tests.approvals.parts import Till


@pytest.fixture
def till() -> Till:
    """Nothing was paid yet."""
    return Till()


async def allowed_by_ada(store: Store, till: Till, **settings: object) -> None:
    """Have a call wait, approved for always and everywhere."""
    (call,) = (await till.waiting(store, tool_call("pay", amount=1), **settings)).pending_calls
    await store.approve("s", call.id, by="Ada", note="bills are fine", always="all")


async def test_it_counts_in_every_state(store: Store, till: Till) -> None:
    """The one in which the person was asked, and new ones; the log of each says by whom and since when."""
    await allowed_by_ada(store, till)

    assert await till.agent(store, tool_call("pay", amount=2), "Both.").resume("s") == "Both."
    assert await till.agent(store, tool_call("pay", amount=3), "Paid.").run("Again", id="t") == "Paid."

    assert till.paid == [1, 2, 3]
    (decided,) = of(await store.load("t"), ApprovalDecided)
    assert (decided.approved, decided.by) == (True, "Ada")
    assert decided.note.startswith("allowed in all States since 20")
    (entry,) = await store.always_allowed()
    assert (entry.tool, entry.by, entry.note, entry.state_id, entry.agent) == ("pay", "Ada", "bills are fine", "s", "")
    assert await store.approvals() == []


async def test_it_is_kept_where_no_worker_takes_it_for_work(store: Store, till: Till) -> None:
    """The list is a State that is finished, and its history keeps who did what."""
    await allowed_by_ada(store, till)
    await store.revoke("pay", by="Bea")

    state = await store.load(STATE_ID)
    assert (state.status, (await store.info(STATE_ID)).status) == ("finished", "finished")
    assert [event.patch[0].path.rpartition("/")[2] for event in of(state, DataChanged)] == [
        "always_allowed",
        "revoked_by",
    ]


async def test_what_is_revoked_is_asked_about_again(store: Store, till: Till) -> None:
    """In every State, that one included in which the person was asked."""
    await allowed_by_ada(store, till)

    (revoked,) = await store.revoke("pay", by="Bea")

    assert (revoked.tool, revoked.by) == ("pay", "Ada")
    assert await store.always_allowed() == []
    assert await till.agent(store, tool_call("pay", amount=2)).resume("s") is None
    assert await till.agent(store, tool_call("pay", amount=3)).run("Again", id="t") is None
    assert till.paid == [1]
    assert len(await store.approvals()) == 2
    with pytest.raises(ConfigError, match="What is: nothing"):
        await store.revoke("pay", by="Bea")
    with pytest.raises(ConfigError, match="who takes it back"):
        await store.revoke("pay", by=" ")


async def test_a_denial_wins(store: Store, till: Till) -> None:
    """A rule that refuses refuses, whatever a person has allowed for always."""
    await allowed_by_ada(store, till)

    await till.agent(store, tool_call("pay", amount=2), "No.", permissions=deny("pay")).run("Again", id="t")

    assert (till.paid, outcomes(await store.load("t"))) == ([], {"pay": "denied"})


async def test_a_tool_of_another_signature_is_asked_about(store: Store, till: Till) -> None:
    """What was allowed is the tool as it was then; its description may change."""
    await allowed_by_ada(store, till)

    @tool(name="pay", needs_approval=True)
    def pay_to(amount: int, account: str) -> str:
        """Pay an amount to an account."""
        raise AssertionError("not approved")

    @tool(name="pay", needs_approval=True)
    async def same(amount: int) -> str:
        """Pay, described in other words."""
        return "paid"

    calls = [tool_call("pay", amount=2, account="mine")]
    assert await Agent(FakeModel(calls), tools=[pay_to], store=store).run("Again", id="t") is None
    assert await Agent(FakeModel([tool_call("pay", amount=2), "Paid."]), tools=[same], store=store).run("Go") == "Paid."


async def test_it_counts_for_agents_of_the_name(store: Store, till: Till) -> None:
    """Another Agent with a tool of that name and parameters may mean something else by it."""
    await allowed_by_ada(store, till, name="clerk")

    assert await till.agent(store, tool_call("pay", amount=2), name="intern").run("Again", id="t") is None
    assert await till.agent(store, tool_call("pay", amount=3), "Paid.", name="clerk").run("Again", id="u") == "Paid."

    assert till.paid == [3]


async def test_it_counts_in_its_namespace(store: Store, till: Till) -> None:
    """No tenant allows anything for another."""
    await allowed_by_ada(store.scoped("a"), till)

    assert await store.scoped("b").always_allowed() == []
    assert await till.agent(store.scoped("b"), tool_call("pay", amount=2)).run("Go") is None
    assert till.paid == []


async def test_a_person_at_hand_can_say_it(store: Store, till: Till) -> None:
    """And is not asked again, in this State or in another."""
    human = FakeHuman([Allow(always="all")], name="Ada")

    pays = [tool_call("pay", amount=1), tool_call("pay", amount=2), "Paid."]
    await till.agent(store, *pays, human=human).run("Pay", id="s")
    await till.agent(store, tool_call("pay", amount=3), "Paid.", human=human).run("Pay", id="t")

    assert (till.paid, len(human.requests)) == ([1, 2, 3], 1)
    assert [entry.by for entry in await store.always_allowed()] == ["Ada"]


async def test_without_a_store_it_cannot_be_kept(till: Till) -> None:
    """That is said at once, and nothing is paid."""
    human = FakeHuman([Allow(always="all")])

    with pytest.raises(ConfigError, match="is kept by a store, and this Agent has none"):
        await Agent(FakeModel([tool_call("pay", amount=1)]), tools=[till.pay], human=human).run("Pay")

    assert till.paid == []


async def test_a_call_of_a_child_can_be_allowed_everywhere(store: Store, till: Till) -> None:
    """By the id of either State; it counts for the child's Agent, under whatever parent."""
    clerk = till.agent(MemoryStore(), tool_call("pay", amount=1), "Paid.", name="clerk")
    agent = Agent(FakeModel([tool_call("clerk", prompt="Pay"), "Done."]), tools=[clerk], store=store)
    assert await agent.run("Go", id="top") is None
    (waiting,) = await store.approvals()

    await store.approve("top", waiting.call_id, by="Ada", always="all")

    assert await agent.resume("top") == "Done."
    assert [entry.agent for entry in await store.always_allowed()] == ["clerk"]
    assert await till.agent(store, tool_call("pay", amount=2), "Paid.", name="clerk").run("Go") == "Paid."
    assert till.paid == [1, 2]


async def test_a_list_that_was_tampered_with_allows_nothing(
    store: Store, till: Till, caplog: pytest.LogCaptureFixture
) -> None:
    """An entry under another key, or one that is malformed, has a person asked."""
    await allowed_by_ada(store, till)
    state = await store.load(STATE_ID)
    with state.edit_extra_data() as data:
        entries = data["always_allowed"]
        assert isinstance(entries, dict)
        ((key, entry),) = entries.items()
        entries.clear()
        assert isinstance(entry, dict)
        entries["another"] = entry
        entries[key] = {**entry, "by": None}
    await store.save(state)

    with caplog.at_level(logging.WARNING, logger="alpineagents"):
        assert await till.agent(store, tool_call("pay", amount=2)).run("Again", id="t") is None

    assert "cannot be read, so it allows nothing" in caplog.text
    assert await store.always_allowed() == []


@pytest.mark.parametrize("at_hand", [False, True])
async def test_what_cannot_be_allowed_everywhere_is_not_decided(at_hand: bool, store: Store, till: Till) -> None:
    """A list that is none is an error that says how to begin another, and the call goes on waiting."""
    await allowed_by_ada(store, till)
    state = await store.load(STATE_ID)
    with state.edit_extra_data() as data:
        data["always_allowed"] = [1]
    await store.save(state)
    (call,) = (await till.waiting(store, tool_call("pay", amount=2), id="t")).pending_calls

    with pytest.raises(StateDamagedError, match=f"To begin another list.*delete\\('{STATE_ID}'"):
        if at_hand:
            await till.agent(store, "Paid.", human=FakeHuman([Allow(always="all")])).resume("t")
        else:
            await store.approve("t", call.id, by="Ada", always="all")
    with pytest.raises(StateDamagedError):
        await store.revoke("pay", by="Ada")

    assert [each.state_id for each in await store.approvals()] == ["t"]
    await store.delete(STATE_ID)
    await store.approve("t", call.id, by="Ada", always="all")
    assert [entry.state_id for entry in await store.always_allowed()] == ["t"]


async def test_of_several_people_one_takes_it_back(store: Store, till: Till) -> None:
    """The others are told that nothing of the kind is allowed any more."""
    await allowed_by_ada(store, till)

    ends = await at_once(*(store.revoke("pay", by=f"person {number}") for number in range(4)))

    assert sorted(type(end).__name__ for end in ends) == ["ConfigError"] * 3 + ["list"]
    assert [event.patch[0].path.rpartition("/")[2] for event in of(await store.load(STATE_ID), DataChanged)] == [
        "always_allowed",
        "revoked_by",
    ]


async def test_a_refused_decision_allows_nothing(store: Store, till: Till) -> None:
    """Whoever comes second with "always, everywhere" has decided nothing, here or elsewhere."""
    (call,) = (await till.waiting(store, tool_call("pay", amount=1))).pending_calls
    await store.deny("s", call.id, by="Bea", reason="no")

    with pytest.raises(ApprovalError):
        await store.approve("s", call.id, by="Ada", always="all")

    assert await store.always_allowed() == []
    assert not await store.exists(STATE_ID)


async def test_decisions_at_one_moment_are_all_kept(store: Store) -> None:
    """Several people allow several tools at once: the list has each."""
    names = [f"pay_{number}" for number in range(6)]
    tills = [Till().pay.copy(name=name) for name in names]
    waiting = []
    for used in tills:
        agent = Agent(FakeModel([tool_call(used.name, amount=1)]), tools=[used], store=store)
        await agent.run("Go", id=used.name)
        waiting += (await store.load(used.name)).pending_calls

    async with anyio.create_task_group() as group:
        for call in waiting:

            async def approve(id: str = call.name, call_id: str = call.id) -> None:
                await store.approve(id, call_id, by="Ada", always="all")

            group.start_soon(approve)

    assert sorted(entry.tool for entry in await store.always_allowed()) == names


def test_scripts_can_list_and_revoke(till: Till, tmp_path: object) -> None:
    """With the `_sync` twins."""
    store = FileStore(str(tmp_path))
    agent = till.agent(store, tool_call("pay", amount=1))
    agent.run_sync("Pay", id="s")
    (waiting,) = store.approvals_sync()
    store.approve_sync("s", waiting.call_id, by="Ada", always="all")

    assert [entry.tool for entry in store.always_allowed_sync()] == ["pay"]
    assert [entry.tool for entry in store.revoke_sync("pay", by="Ada")] == ["pay"]
    assert store.always_allowed_sync() == []
