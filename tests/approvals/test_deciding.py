"""A decision: about a call that waits, once, by whoever is first, and for what was shown only."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from alpineagents import (
    AlreadyDecidedError,
    ApprovalDecided,
    ApprovalError,
    ApprovalRequested,
    Ask,
    ConfigError,
    StateDamagedError,
    StateNotFoundError,
    Store,
    ToolCall,
    ValueNotStorableError,
    tool,
)
from alpineagents.permissions import deny
from alpineagents.testing import FakeModel, tool_call
from tests.agent.parts import at_once, complaints, kinds, of, outcomes, results
from tests.approvals.parts import Till, tamper
from tests.contract.backends import Backend


@pytest.fixture
def till() -> Till:
    """Nothing was paid yet."""
    return Till()


async def test_the_second_of_two_decisions_is_refused(store: Store, till: Till) -> None:
    """The first counts; the error says who was first and how they decided."""
    (call,) = (await till.waiting(store, tool_call("pay", amount=5))).pending_calls
    await store.deny("s", call.id, by="Ada", reason="no")

    with pytest.raises(AlreadyDecidedError, match="'Ada' has denied it already") as refused:
        await store.approve("s", call.id, by="Bob")

    assert (refused.value.by, refused.value.approved, refused.value.call_id) == ("Ada", False, call.id)
    assert len(of(await store.load("s"), ApprovalDecided)) == 1


async def test_of_decisions_at_once_one_counts(backend: Backend, till: Till) -> None:
    """Whatever the order in which they come: one lands, the others are told so."""
    async with backend.open() as store:
        (call,) = (await till.waiting(store, tool_call("pay", amount=5))).pending_calls

        ends = await at_once(*[store.approve("s", call.id, by=f"person {number}") for number in range(6)])

        assert sum(isinstance(end, int) for end in ends) == 1
        assert sum(isinstance(end, AlreadyDecidedError) for end in ends) == 5
        assert len(of(await store.load("s"), ApprovalDecided)) == 1


async def test_a_call_that_is_not_there_cannot_be_decided_on(store: Store, till: Till) -> None:
    """The error names what waits instead."""
    (call,) = (await till.waiting(store, tool_call("pay", amount=5))).pending_calls

    with pytest.raises(ApprovalError, match=f"no such call. What waits here: '{call.id}' \\(pay\\)"):
        await store.approve("s", "another", by="Ada")
    with pytest.raises(StateNotFoundError):
        await store.approve("nowhere", call.id, by="Ada")


async def test_a_call_that_has_ended_cannot_be_decided_on(store: Store, till: Till) -> None:
    """It was decided on by somebody, or by nobody: the error says how it ended."""
    look = tool(look_around, name="look")
    agent = till.agent(store, [tool_call("look")], "Seen.", tools=[till.pay, look])
    await agent.run("Look", id="s")
    (call,) = (await store.load("s")).messages[1].tool_calls

    with pytest.raises(ApprovalError, match=r"it has ended \(ok\). What waits here: nothing"):
        await store.deny("s", call.id, by="Ada", reason="no")

    (paying,) = (await till.waiting(store, tool_call("pay", amount=5), id="t")).pending_calls
    await store.approve("t", paying.id, by="Ada")
    await till.agent(store).resume("t")
    with pytest.raises(AlreadyDecidedError, match="'Ada' has approved it already"):
        await store.deny("t", paying.id, by="Bob", reason="no")


async def look_around() -> str:
    """Look."""
    return "seen"


async def test_a_decision_says_who_and_its_arguments_can_be_stored(store: Store, till: Till) -> None:
    """What is no decision is refused before anything is written."""
    (call,) = (await till.waiting(store, tool_call("pay", amount=5))).pending_calls
    wrong: Any = [("", ""), (None, None)]
    revision = (await store.info("s")).revision

    for by, _ in wrong:
        with pytest.raises(ConfigError, match="who decides"):
            await store.approve("s", call.id, by=by)
    with pytest.raises(ConfigError, match="args is a dict"):
        await store.approve("s", call.id, by="Ada", args=[5])
    with pytest.raises(ValueNotStorableError, match=r"args\['amount'\]"):
        await store.approve("s", call.id, by="Ada", args={"amount": {5}})
    with pytest.raises(ConfigError, match="always"):
        await store.approve("s", call.id, by="Ada", always="everywhere")

    assert (await store.info("s")).revision == revision


async def test_a_state_whose_calls_are_decided_is_ready(store: Store, till: Till) -> None:
    """It no longer counts as waiting once the last decision is there, so a worker finds it."""
    first, second = (await till.waiting(store, tool_call("pay", amount=1), tool_call("pay", amount=2))).pending_calls

    await store.approve("s", first.id, by="Ada")
    assert (await store.info("s")).status == "waiting"
    await store.deny("s", second.id, by="Ada", reason="no")

    assert (await store.info("s")).status == (await store.load("s")).status == "ready"


async def test_two_calls_alike_are_decided_by_their_ids(store: Store, till: Till) -> None:
    """Parallel calls with the same arguments: the answer to one is not an answer to the other."""
    first, second = (await till.waiting(store, tool_call("pay", amount=5), tool_call("pay", amount=5))).pending_calls
    await store.approve("s", second.id, by="Ada")
    await till.agent(store).resume("s")

    state = await store.load("s")
    assert till.paid == [5]
    assert [call.id for call in state.pending_calls] == [first.id]

    await store.deny("s", first.id, by="Ada", reason="no")
    await till.agent(store).resume("s")

    state = await store.load("s")
    assert [result.outcome for result in state.messages[2].tool_results] == ["denied", "ok"]
    assert complaints(state.messages) == []


async def test_an_approval_does_not_count_for_another_amount(store: Store, till: Till) -> None:
    """Where the call is no longer the one that was approved, it is not made; a person is asked about what it is now."""
    (call,) = (await till.waiting(store, tool_call("pay", amount=1))).pending_calls
    await store.approve("s", call.id, by="Ada")

    def raise_the_amount(payload: dict[str, Any]) -> None:
        payload["message"]["content"][0]["args"]["amount"] = 82_000

    await tamper(store, "s", "model_replied", raise_the_amount)
    await till.agent(store).resume("s")

    assert till.paid == []
    (waiting,) = await store.approvals()
    assert (waiting.call_id, waiting.args) == (call.id, {"amount": 82_000})
    await store.approve("s", call.id, by="Ada")
    assert await till.agent(store).resume("s") == "All done."
    assert till.paid == [82_000]


async def test_an_approval_does_not_count_for_a_tool_of_another_signature(store: Store, till: Till) -> None:
    """A parameter that came later was not shown, so a person is asked again; a better docstring asks no one."""
    (call,) = (await till.waiting(store, tool_call("pay", amount=5))).pending_calls
    await store.approve("s", call.id, by="Ada")

    @tool(needs_approval=True)
    async def pay(amount: int, currency: str = "CHF") -> str:
        """Pay an amount."""
        till.paid.append(amount)
        return currency

    with pytest.warns(UserWarning, match="changed pay"):
        await till.agent(store, tools=[pay]).resume("s")

    assert (till.paid, (await store.load("s")).status) == ([], "waiting")
    await store.approve("s", call.id, by="Ada")
    described = pay.copy(description="Pay an amount, in francs if nothing else is said.")
    with pytest.warns(UserWarning, match="changed pay"):
        await till.agent(store, tools=[described]).resume("s")
    assert till.paid == [5]


@pytest.mark.parametrize(
    "change",
    [
        {"digest": "ab" * 32},
        {"digest": ""},
        {"call_id": "another"},
        {"args": {"amount": 82_000}},
        {"digest": "", "args": {"amount": 82_000}},
        {"digest": "", "always": "state"},
        {"always": "state"},
        {"by": "Bob"},
        {"note": "by order of the king"},
        {"seal": ""},
        {"seal": "ab" * 32},
    ],
)
async def test_a_decision_that_was_tampered_with_makes_nothing(
    change: dict[str, Any], store: Store, till: Till
) -> None:
    """Its digest or its seal does not fit, or it is another's: the call goes on waiting for a person."""
    (call,) = (await till.waiting(store, tool_call("pay", amount=1))).pending_calls
    await store.approve("s", call.id, by="Ada")
    await tamper(store, "s", "approval_decided", lambda payload: payload.update(change))

    await till.agent(store).resume("s")

    state = await store.load("s")
    assert (till.paid, state.status) == ([], "waiting")
    assert [each.call_id for each in await store.approvals()] == [call.id]


@pytest.mark.parametrize("change", [{"approved": True}, {"approved": True, "seal": ""}])
async def test_a_refusal_cannot_be_turned_into_an_approval(change: dict[str, Any], store: Store, till: Till) -> None:
    """By a change of its record: the call waits for a person again."""
    (call,) = (await till.waiting(store, tool_call("pay", amount=1))).pending_calls
    await store.deny("s", call.id, by="Ada", reason="no")
    await tamper(store, "s", "approval_decided", lambda payload: payload.update(change))

    await till.agent(store).resume("s")

    assert (till.paid, (await store.load("s")).status) == ([], "waiting")


async def test_a_decision_can_be_bound_to_the_question_that_was_shown(store: Store, till: Till) -> None:
    """Where the State was deleted and made again, another call may bear the same id."""
    await till.waiting(store, ToolCall(id="call_0", name="pay", args={"amount": 5}))
    (shown,) = await store.approvals()
    await store.delete("s")
    await till.waiting(store, ToolCall(id="call_0", name="pay", args={"amount": 5000}))

    for decide in (
        store.approve("s", "call_0", by="Ada", digest=shown.digest),
        store.deny("s", "call_0", by="Ada", reason="no", digest=shown.digest),
    ):
        with pytest.raises(ApprovalError, match="something else than what was shown"):
            await decide

    (asked,) = await store.approvals()
    await store.approve("s", "call_0", by="Ada", digest=asked.digest)


@pytest.mark.parametrize(
    "change", [{"approved": "perhaps"}, {"approved": None}, {"always": "everywhere"}, {"args": [1]}, {"more": 1}]
)
async def test_a_malformed_decision_makes_nothing(change: dict[str, Any], store: Store, till: Till) -> None:
    """The State is damaged there, and says so; no tool is entered."""
    (call,) = (await till.waiting(store, tool_call("pay", amount=1))).pending_calls
    await store.approve("s", call.id, by="Ada")
    await tamper(store, "s", "approval_decided", lambda payload: payload.update(change))

    with pytest.raises(StateDamagedError, match="approval_decided"):
        await till.agent(store).resume("s")

    assert till.paid == []


async def test_the_tool_gets_the_arguments_that_were_approved(store: Store, till: Till) -> None:
    """Changed by who decided, recorded with the decision, and told to the model."""
    (call,) = (await till.waiting(store, tool_call("pay", amount=82_000))).pending_calls
    await store.approve("s", call.id, by="Ada", args={"amount": 1})

    await till.agent(store).resume("s")

    state = await store.load("s")
    asked, decided = of(state, ApprovalRequested)[0], of(state, ApprovalDecided)[0]
    assert till.paid == [1]
    assert results(state) == ['[Ada changed the arguments to {"amount": 1}]paid 1']
    assert (decided.args, decided.digest != asked.digest) == ({"amount": 1}, True)
    assert state.messages[1].tool_calls[0].args == {"amount": 82_000}


async def test_arguments_that_do_not_fit_make_nothing(store: Store, till: Till) -> None:
    """The tool is not entered, and the model is told that they were not its own."""
    (call,) = (await till.waiting(store, tool_call("pay", amount=5))).pending_calls
    await store.approve("s", call.id, by="Ada", args={"sum": "much"})

    await till.agent(store).resume("s")

    state = await store.load("s")
    assert (till.paid, outcomes(state)) == ([], {"pay": "input_error"})
    assert results(state)[0].startswith('[Ada changed the arguments to {"sum": "much"}]pay was not run, ')


async def test_a_denial_of_changed_arguments_says_whose_they_are(store: Store, till: Till) -> None:
    """A rule looks at them before the call is made; the model would else take it for its own."""
    rules = [deny(when=lambda call: call.args["amount"] == 1, reason="not one"), Ask()]
    (call,) = (await till.waiting(store, tool_call("pay", amount=5), permissions=rules)).pending_calls
    await store.approve("s", call.id, by="Ada", args={"amount": 1})

    await till.agent(store, permissions=rules).resume("s")

    [told] = results(await store.load("s"))
    assert told.startswith('[Ada changed the arguments to {"amount": 1}]rule deny(when=')
    assert till.paid == []


async def test_an_approval_for_always_counts_in_its_state(store: Store, till: Till) -> None:
    """Later calls of the tool are made unasked, in any process; another State is asked, and another tool."""
    (call,) = (await till.waiting(store, tool_call("pay", amount=1))).pending_calls
    await store.approve("s", call.id, by="Ada", always="state")

    assert await till.agent(store, tool_call("pay", amount=2), "Both.").resume("s") == "Both."
    other = till.pay.copy(name="pay_back")
    await till.agent(store, [tool_call("pay", amount=3), tool_call("pay_back", amount=4)], tools=[till.pay, other]).run(
        "Again", id="t"
    )

    assert till.paid == [1, 2]
    assert [each.args for each in await store.approvals()] == [{"amount": 3}, {"amount": 4}]


async def test_an_approval_counts_where_it_was_given(store: Store, till: Till) -> None:
    """In a fork, what was approved before and not made yet is asked about again, and no "always" goes with it."""
    (call,) = (await till.waiting(store, tool_call("pay", amount=1))).pending_calls
    await store.approve("s", call.id, by="Ada", always="state")
    await store.fork("s", "t")

    assert await till.agent(store, "unasked").resume("t") is None
    assert till.paid == []
    await store.approve("t", call.id, by="Ben")
    assert await till.agent(store, tool_call("pay", amount=2)).resume("t") is None
    assert [(each.state_id, each.args) for each in await store.approvals()] == [("t", {"amount": 2})]
    assert till.paid == [1]

    assert await till.agent(store, tool_call("pay", amount=3), "All.").resume("s") == "All."
    assert till.paid == [1, 1, 3]


def let_it_expire(payload: dict[str, Any]) -> None:
    payload["expires_at"] = "2020-01-01T00:00:00Z"


async def test_a_call_that_nobody_decided_on_in_time_is_denied(store: Store, till: Till) -> None:
    """The next run tells the model so, and writes it down: whoever reads it later needs no clock."""
    rule = Ask("Pay this?", expires_in=3600)
    (call,) = (await till.waiting(store, tool_call("pay", amount=5), permissions=rule)).pending_calls
    (waiting,) = await store.approvals()
    assert waiting.question == "Pay this?"
    assert waiting.expires_at is not None
    assert 3500 < (waiting.expires_at - datetime.now(UTC)).total_seconds() <= 3600
    await tamper(store, "s", "approval_requested", let_it_expire)
    with pytest.raises(ApprovalError, match="the time to decide on it was over"):
        await store.approve("s", call.id, by="Ada")

    await till.agent(store, "I see.", permissions=rule).resume("s")

    state = await store.load("s")
    (decided,) = of(state, ApprovalDecided)
    assert (till.paid, outcomes(state), state.answer) == ([], {"pay": "denied"}, "I see.")
    assert (decided.by, decided.approved) == ("expiry", False)
    assert "nobody decided before" in results(state)[0]


async def test_an_approval_in_time_counts_when_the_run_goes_on_later(store: Store, till: Till) -> None:
    """It is the decision that has to be in time, not the call."""
    rule = Ask(expires_in=3600)
    (call,) = (await till.waiting(store, tool_call("pay", amount=5), permissions=rule)).pending_calls
    await store.approve("s", call.id, by="Ada")

    await tamper(store, "s", "approval_requested", let_it_expire)
    await till.agent(store, permissions=rule).resume("s")

    assert till.paid == [5]


async def test_what_waits_is_listed_over_all_states(store: Store, till: Till) -> None:
    """With all that a person needs to decide, the oldest question first; States that do not wait are not read."""
    await till.agent(store, "Good day.").run("Hello", id="idle")
    await till.waiting(store, tool_call("pay", amount=1), id="first")
    await till.waiting(store, tool_call("pay", amount=2), tool_call("pay", amount=3), id="second")
    loaded: list[str] = []
    load = store.load

    async def watched(id: str, revision: int | None = None) -> Any:
        loaded.append(id)
        return await load(id, revision)

    store.load = watched
    found = await store.approvals()

    assert [(each.state_id, each.tool, each.args["amount"]) for each in found] == [
        ("first", "pay", 1),
        ("second", "pay", 2),
        ("second", "pay", 3),
    ]
    assert sorted(loaded) == ["first", "second"]
    assert all(each.question and each.requested_at for each in found)
    await store.approve(found[0].state_id, found[0].call_id, by="Ada")
    assert [each.state_id for each in await store.approvals()] == ["second", "second"]


async def test_a_state_that_cannot_be_read_is_no_bar_to_the_others(
    store: Store, till: Till, caplog: pytest.LogCaptureFixture
) -> None:
    """What waits elsewhere is listed; the damaged one is logged."""
    await till.waiting(store, tool_call("pay", amount=1), id="damaged")
    await till.waiting(store, tool_call("pay", amount=2), id="whole")
    await tamper(store, "damaged", "approval_requested", lambda payload: payload.update(digest=5))

    found = await store.approvals()

    assert [each.state_id for each in found] == ["whole"]
    assert "damaged" in caplog.text


async def test_a_tenant_does_not_see_what_waits_for_another(store: Store, till: Till) -> None:
    """Nor can they decide on it."""
    tenant, other = store.scoped("tenant"), store.scoped("other")
    (call,) = (await till.waiting(tenant, tool_call("pay", amount=1))).pending_calls

    assert await other.approvals() == []
    assert [each.namespace for each in await tenant.approvals()] == ["tenant"]
    with pytest.raises(StateNotFoundError):
        await other.approve("s", call.id, by="Mallory")


async def test_a_question_that_is_repeated_asks_no_model(store: Store, till: Till) -> None:
    """A State that waits can be run any number of times; the person is asked once."""
    await till.waiting(store, tool_call("pay", amount=5))
    model = FakeModel([])

    for _ in range(2):
        await till.agent(store).copy(model=model).resume("s")

    state = await store.load("s")
    assert (model.requests, kinds(state).count("approval_requested"), state.status) == ([], 1, "waiting")
