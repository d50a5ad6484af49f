"""Rules: they decide about every call before any tool of the turn runs, and what fails never counts as allowed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from alpineagents import (
    Agent,
    Allow,
    ApprovalDecided,
    ApprovalRequested,
    Ask,
    ConfigError,
    Deny,
    MemoryStore,
    Message,
    State,
    StoppedByPermission,
    StoppedByUntil,
    Store,
    ToolRequest,
    ToolStarted,
    WaitingForApproval,
    tool,
)
from alpineagents.permissions import allow, ask, deny
from alpineagents.testing import FakeModel, tool_call
from tests.agent.parts import check_closed, complaints, kinds, of, outcomes, results


@tool(read_only=True)
def read_file(path: str) -> str:
    """Read a file."""
    return f"text of {path}"


@tool(destructive=True, idempotent=True)
def delete_file(path: str) -> str:
    """Delete a file."""
    return f"{path} is gone"


@tool(open_world=True)
def fetch(url: str) -> str:
    """Fetch a page."""
    return f"page {url}"


@tool(needs_approval=True)
def pay(amount: int) -> str:
    """Pay an amount."""
    return f"paid {amount}"


TOOLS = [read_file, delete_file, fetch, pay]
CALLS = [
    tool_call("read_file", path="a"),
    tool_call("delete_file", path="b"),
    tool_call("fetch", url="c"),
    tool_call("pay", amount=5),
]


async def outcome_of(permissions: Any, *, needs: bool = False) -> dict[str, str]:
    """Return what becomes of a call of each tool: how it ended, or "waits"."""
    tools = [each.copy(needs_approval=needs and each.needs_approval) for each in TOOLS]
    store = MemoryStore()
    await Agent(FakeModel([CALLS, "Done."]), tools=tools, permissions=permissions, store=store).run("Go", id="s")
    state = await store.load("s")
    return outcomes(state) | {call.name: "waits" for call in state.pending_calls}


@pytest.mark.parametrize(
    "rule, allowed",
    [
        (allow("read_file"), ["read_file"]),
        (allow("*_file"), ["read_file", "delete_file"]),
        (allow("*_file", "pay"), ["read_file", "delete_file", "pay"]),
        (allow("READ_*"), []),
        (allow(read_only=True), ["read_file"]),
        (allow(read_only=False), ["delete_file", "fetch", "pay"]),
        (allow(destructive=True, idempotent=True), ["delete_file"]),
        (allow(destructive=True, idempotent=False), []),
        (allow(open_world=True), ["fetch"]),
        (allow("*_file", destructive=False), ["read_file"]),
        (allow(when=lambda call: "path" in call.args), ["read_file", "delete_file"]),
        (allow("fetch", when=lambda call: call.values["url"] == "c"), ["fetch"]),
        (allow(), ["read_file", "delete_file", "fetch", "pay"]),
        (Allow(), ["read_file", "delete_file", "fetch", "pay"]),
        (lambda call: Allow() if call.tool.open_world else None, ["fetch"]),
        ([], []),
    ],
)
async def test_a_rule_allows_what_it_names_and_nothing_else(rule: Any, allowed: list[str]) -> None:
    """By name, by hint, by predicate; a call that no rule allows is refused."""
    found = await outcome_of(rule)

    assert found == {each.name: "ok" if each.name in allowed else "denied" for each in TOOLS}


async def test_a_refusal_that_no_rule_made_is_told() -> None:
    """The model reads that nothing allows it; the history says who refused."""
    agent = Agent(FakeModel([tool_call("fetch", url="a"), "I see."]), tools=TOOLS, permissions=allow("read_*"))

    state = await ran(agent)

    assert results(state) == ["permissions refused this call: no rule allows it"]
    assert [event.by for event in of(state, ApprovalDecided)] == ["permissions"]


async def ran(agent: Agent) -> State:
    """Run an Agent on a new State and return it."""
    store = MemoryStore()
    await agent.copy(store=store).run("Go", id="s")
    return await store.load("s")


async def test_denials_come_first() -> None:
    """Wherever they stand: an earlier Allow or Ask does not cover them."""
    found = await outcome_of([allow(), ask("pay"), deny("delete_*", reason="nothing is deleted here")])

    assert found == {"read_file": "ok", "delete_file": "denied", "fetch": "ok", "pay": "ok"}


async def test_then_the_first_rule_that_says_something_counts() -> None:
    """In the order given."""
    found = await outcome_of([ask("pay"), allow("pay"), allow("fetch"), ask("fetch"), allow(read_only=True)])

    assert found == {"read_file": "ok", "delete_file": "denied", "fetch": "ok", "pay": "waits"}


async def test_a_tool_that_needs_an_approval_asks_unless_a_rule_decides() -> None:
    """The tool's own wish is the last rule."""
    assert (await outcome_of(allow(read_only=True), needs=True))["pay"] == "waits"
    assert (await outcome_of([allow()], needs=True))["pay"] == "ok"
    assert (await outcome_of(deny("pay"), needs=True))["pay"] == "denied"


async def async_rule(call: ToolRequest) -> Allow:
    return Allow()


async def async_when(call: ToolRequest) -> bool:
    return call.name == "pay"


@pytest.mark.parametrize("rule", [async_rule, allow("pay", when=async_when)])
async def test_a_rule_may_be_async(rule: Any) -> None:
    """And so may a predicate."""
    assert (await outcome_of(rule))["pay"] == "ok"


def raises(call: ToolRequest) -> Allow:
    raise KeyError("limits")


async def raises_later(call: ToolRequest) -> Allow:
    raise KeyError("limits")


def says_true(call: ToolRequest) -> Any:
    return True


def edits_wrongly(call: ToolRequest) -> Allow:
    return Allow(args={"amount": {1, 2}})


def allows_for_always(call: ToolRequest) -> Allow:
    return Allow(always="state")


@pytest.mark.parametrize(
    "rule, why",
    [
        (raises, "the rule failed with KeyError"),
        (raises_later, "the rule failed with KeyError"),
        (allow(when=raises), "the rule failed with KeyError"),
        (says_true, "returned True"),
        (edits_wrongly, "amount"),
        (allows_for_always, "a person's answer"),
        (Allow(args={"sum": 5}), "do not fit"),
    ],
)
async def test_a_rule_that_fails_allows_nothing(rule: Any, why: str) -> None:
    """Also beside one that allows all: the call is refused, and the history says by which rule and why."""
    agent = Agent(FakeModel([tool_call("pay", amount=5), "I see."]), tools=TOOLS, permissions=[rule, allow()])

    state = await ran(agent)

    (decided,) = of(state, ApprovalDecided)
    assert (decided.approved, why in decided.note) == (False, True)
    assert decided.by.startswith("rule ")
    assert outcomes(state) == {"pay": "denied"}
    assert why in results(state)[0]


async def test_a_denial_is_recorded_with_who_and_why() -> None:
    """And told to the model, who goes on."""
    agent = Agent(
        FakeModel([tool_call("delete_file", path="a"), "I see."]),
        tools=TOOLS,
        permissions=[deny("delete_*", reason="nothing is deleted here"), allow()],
    )

    state = await ran(agent)

    (decided,) = of(state, ApprovalDecided)
    assert (decided.by, decided.note) == ("rule deny('delete_*')", "nothing is deleted here")
    assert results(state) == ["rule deny('delete_*') refused this call: nothing is deleted here"]
    assert (state.answer, state.stopped) == ("I see.", StoppedByUntil(name="waiting_for_user"))


async def test_a_plain_allow_is_no_event() -> None:
    """The start of the call says enough."""
    agent = Agent(FakeModel([tool_call("read_file", path="a"), "Read."]), tools=TOOLS, permissions=allow())

    assert of(await ran(agent), ApprovalDecided) == []


async def test_a_rule_may_change_the_arguments() -> None:
    """The tool gets them, the history has them with the rule's name, and the model is told."""

    def at_most_100(call: ToolRequest) -> Allow | None:
        return Allow(args={"amount": min(100, int(str(call.args["amount"])))}) if call.name == "pay" else None

    calls = [tool_call("pay", amount=82_000), tool_call("pay", amount=7)]
    state = await ran(Agent(FakeModel([calls, "Paid."]), tools=TOOLS, permissions=at_most_100))

    (decided,) = of(state, ApprovalDecided)
    changed = results(state)[0]
    assert (decided.args, decided.approved) == ({"amount": 100}, True)
    assert "at_most_100" in decided.by
    assert changed.endswith('changed the arguments to {"amount": 100}]paid 100')
    assert results(state)[1] == "paid 7"


async def test_a_rule_asks_with_a_question_and_an_expiry(store: Store) -> None:
    """Both are in the request; after the approval the call is made."""
    rules = [ask("pay", question="Pay this bill?", expires_in=60), allow()]
    agent = Agent(FakeModel([tool_call("pay", amount=5), "Paid."]), tools=TOOLS, permissions=rules, store=store)
    await agent.run("Pay", id="s")

    (asked,) = of(await store.load("s"), ApprovalRequested)
    assert asked.question == "Pay this bill?"
    assert 59 < (asked.expires_at - asked.at).total_seconds() < 61
    await store.approve("s", asked.call_id, by="Ada")
    assert await agent.resume("s") == "Paid."
    await check_closed(store, await store.load("s"))


async def test_a_denial_counts_against_an_approval_too(store: Store) -> None:
    """Rules that came later are asked before an approved call is made, about the arguments that were approved."""
    calls = [tool_call("pay", amount=5)]
    agent = Agent(FakeModel([calls, "I see."]), tools=TOOLS, permissions=ask("pay"), store=store)
    await agent.run("Pay", id="s")
    (waiting,) = await store.approvals()
    await store.approve("s", waiting.call_id, by="Ada", args={"amount": 82_000})
    stricter = agent.copy(
        permissions=[deny("pay", when=lambda call: call.args["amount"] > 1000, reason="too much"), ask("pay")]
    )

    with pytest.warns(UserWarning, match="differs in permissions"):
        await stricter.resume("s")

    state = await store.load("s")
    assert outcomes(state) == {"pay": "denied"}
    assert "too much" in results(state)[0]


async def test_all_calls_are_decided_before_a_tool_runs() -> None:
    """A rule that looks at the second call finds the first one not started."""
    started: list[int] = []

    def look(call: ToolRequest) -> Allow:
        started.append(len(of(call.state, ToolStarted)))
        return Allow()

    await ran(Agent(FakeModel([CALLS, "Done."]), tools=TOOLS, permissions=look))

    assert started == [0, 0, 0, 0]


async def test_a_denial_that_stops_ends_the_run(store: Store) -> None:
    """Its siblings are not made, each call has its result, the model is not asked again, and a State can go on."""
    model = FakeModel([CALLS, "I see.", "never"])
    rules = [deny("delete_*", reason="this looks like an attack", stop=True), ask("pay"), allow()]
    agent = Agent(model, tools=TOOLS, permissions=rules, store=store)

    assert await agent.run("Go", id="s") is None

    state = await store.load("s")
    assert isinstance(state.stopped, StoppedByPermission)
    assert (state.stopped.call.name, state.stopped.reason) == ("delete_file", "this looks like an attack")
    assert outcomes(state) == {
        "delete_file": "denied",
        "read_file": "cancelled",
        "fetch": "cancelled",
        "pay": "cancelled",
    }
    assert (len(model.requests), state.status, kinds(state).count("tool_started")) == (1, "stopped", 0)
    assert await store.approvals() == []
    await check_closed(store, state)
    assert await agent.resume("s", "What happened?") == "I see."


async def test_use_tools_by_itself_stops_too() -> None:
    """Outside of a loop, the run of the one step ends with the reason."""
    agent = Agent(FakeModel([CALLS]), tools=TOOLS, permissions=Deny("no", stop=True))
    state = State(messages=[Message.user("Go")])
    await agent.think(state)

    await agent.use_tools(state)

    assert isinstance(state.stopped, StoppedByPermission)
    assert complaints(state.messages) == []


def takes_nothing() -> Allow:
    return Allow()


@pytest.mark.parametrize(
    "permissions, message",
    [
        (Allow, r"write a decision: Allow\(…\)"),
        ([Deny], r"write a decision: Deny\(…\)"),
        ("read_*", "no rule"),
        ([True], "no rule"),
        (takes_nothing, "must take one argument"),
        (5, "no rule"),
    ],
)
def test_what_is_no_rule_is_refused_at_once(permissions: Any, message: str) -> None:
    """When the Agent is made, not at the first call."""
    with pytest.raises(ConfigError, match=message):
        Agent(FakeModel([]), permissions=permissions)


@pytest.mark.parametrize(
    "make",
    [
        lambda: Ask(expires_in=0),
        lambda: Ask(expires_in=float("nan")),
        lambda: Ask(expires_in=1e12),
        lambda: ask(expires_in=1e300),
        lambda: ask(expires_in=10**400),
        lambda: Ask(5),
        lambda: Deny(None),
        lambda: Allow(args=5),
        lambda: Allow(always="ever"),
        lambda: allow(""),
        lambda: allow(5),
        lambda: deny(when=5),
        lambda: deny(destructive="yes"),
        lambda: allow(read_only=1),
        lambda: ask(open_world=lambda _args: True),
    ],
)
def test_a_decision_that_cannot_work_is_refused(make: Callable[[], object]) -> None:
    """Where it is written."""
    with pytest.raises(ConfigError):
        make()


async def test_an_agent_with_other_rules_is_told(store: Store) -> None:
    """The same rules, made again, are the same; others are what the warning names."""
    agent = Agent(FakeModel(["Hi", "Hi", "Hi"]), tools=TOOLS, permissions=[ask("pay", expires_in=60)], store=store)
    await agent.run("Hello", id="s")

    await agent.copy(permissions=[ask("pay", expires_in=60)]).resume("s", "Again")
    with pytest.warns(UserWarning, match="differs in permissions$"):
        await agent.copy(permissions=[ask("pay", expires_in=61)]).resume("s", "And again")


async def test_an_agent_keeps_its_rules_in_a_copy() -> None:
    """Also none at all, which is not the same as an empty list."""
    assert Agent(FakeModel([]), permissions=[]).copy(name="x").permissions is not None
    assert Agent(FakeModel([])).copy(name="x").permissions is None


async def test_a_waiting_state_asks_its_rules_no_more(store: Store) -> None:
    """A call that waits for a person is not asked about twice."""
    agent = Agent(FakeModel([tool_call("pay", amount=5)]), tools=TOOLS, permissions=Ask(), store=store)
    await agent.run("Pay", id="s")

    await agent.resume("s")

    state = await store.load("s")
    assert isinstance(state.stopped, WaitingForApproval)
    assert len(of(state, ApprovalRequested)) == 1


@pytest.mark.parametrize("first", ["denial", "edit"])
async def test_a_denial_counts_for_the_arguments_that_a_rule_puts_in(first: str) -> None:
    """What one rule changes, the others look at again, in whatever order they stand."""
    never = deny(when=lambda request: request.values["amount"] > 100, reason="never")
    rules = [never, lambda request: Allow(args={"amount": 999})]
    agent = Agent(
        FakeModel([tool_call("pay", amount=1), "Well."]),
        tools=[pay],
        permissions=rules if first == "denial" else rules[::-1],
    )
    state = State(messages=[Message.user("Pay 1")])

    await agent.run(state)

    assert (outcomes(state), of(state, ToolStarted)) == ({"pay": "denied"}, [])
    assert "never" in results(state)[0]


async def test_a_rule_cannot_change_arguments_past_a_question() -> None:
    """To some that a person has to be asked about: nobody was shown them, so the call is refused."""
    rules = [ask(when=lambda request: request.values["amount"] > 100), lambda request: Allow(args={"amount": 999})]
    agent = Agent(FakeModel([tool_call("pay", amount=1), "Well."]), tools=[pay], permissions=rules)
    state = State(messages=[Message.user("Pay 1")])

    await agent.run(state)

    assert (outcomes(state), of(state, ToolStarted)) == ({"pay": "denied"}, [])
    assert "a person has to be asked about" in results(state)[0]
