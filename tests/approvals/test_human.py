"""A person at hand: asked while the run goes on, with the same Events; a question that is left open stays."""

from __future__ import annotations

import asyncio
from typing import Any

import anyio
import pytest

from alpineagents import (
    Agent,
    Allow,
    ApprovalDecided,
    Ask,
    Asked,
    ConfigError,
    Deny,
    Human,
    Message,
    PendingApproval,
    State,
    StoppedByPermission,
    Store,
    ToolContext,
    WaitingForApproval,
    tool,
)
from alpineagents.testing import FakeHuman, FakeModel, tool_call
from tests.agent.parts import check_closed, complaints, kinds, of, outcomes, results, wait_for
from tests.approvals.parts import Till


@pytest.fixture
def till() -> Till:
    """Nothing was paid yet."""
    return Till()


async def test_a_person_at_hand_is_asked_in_the_run(store: Store, till: Till) -> None:
    """The run goes on with what they say; request and decision are in the history as without them."""
    human = FakeHuman([True], name="Ada")
    agent = till.agent(store, tool_call("pay", amount=5), "Paid.", human=human)

    assert await agent.run("Pay", id="s") == "Paid."

    state = await store.load("s")
    (decided,) = of(state, ApprovalDecided)
    assert (till.paid, decided.by, decided.approved) == ([5], "Ada", True)
    assert [(each.state_id, each.tool, each.args) for each in human.requests] == [("s", "pay", {"amount": 5})]
    asked = kinds(state)
    assert asked.index("approval_requested") < asked.index("approval_decided") < asked.index("tool_started")
    await check_closed(store, state)


async def test_the_request_is_saved_before_the_person_is_asked(store: Store, till: Till) -> None:
    """Whatever happens to the process then, the question is there; the run holds the State, and asks nobody else."""
    seen: list[Any] = []

    async def look(request: PendingApproval) -> Allow:
        seen.append([(await store.load("s")).history[-1].kind, (await store.info("s")).lease_until is not None])
        seen.append(await store.approvals())
        return Allow()

    await till.agent(store, tool_call("pay", amount=5), "Paid.", human=FakeHuman(look)).run("Pay", id="s")

    assert seen == [["approval_requested", True], []]


@pytest.mark.parametrize(
    "decision, paid, told",
    [
        (Allow(), [5], "paid 5"),
        (Allow(args={"amount": 1}), [1], '[human changed the arguments to {"amount": 1}]paid 1'),
        (Deny("too much"), [], "human refused this call: too much"),
        (False, [], "human refused this call: no"),
    ],
)
async def test_what_a_person_says_counts(decision: Any, paid: list[int], told: str, store: Store, till: Till) -> None:
    """To allow, to allow with other arguments, to refuse."""
    agent = till.agent(store, tool_call("pay", amount=5), "I see.", human=FakeHuman([decision]))

    await agent.run("Pay", id="s")

    assert (till.paid, results(await store.load("s"))) == (paid, [told])


async def test_calls_are_asked_about_one_by_one(store: Store, till: Till) -> None:
    """In the order asked, and none is made before the last answer."""
    paid_before: list[int] = []

    def decide(request: PendingApproval) -> bool:
        paid_before.append(len(till.paid))
        return request.args["amount"] != 2

    calls = [tool_call("pay", amount=number) for number in (1, 2, 3)]
    await till.agent(store, calls, "Done.", human=FakeHuman(decide)).run("Pay", id="s")

    assert (sorted(till.paid), paid_before) == ([1, 3], [0, 0, 0])
    assert complaints((await store.load("s")).messages) == []


async def test_always_spares_the_next_question(store: Store, till: Till) -> None:
    """In this State, for this tool."""
    human = FakeHuman([Allow(always="state")])
    agent = till.agent(store, tool_call("pay", amount=1), tool_call("pay", amount=2), "Done.", human=human)

    await agent.run("Pay", id="s")

    assert (till.paid, len(human.requests)) == ([1, 2], 1)


async def test_a_person_may_end_the_run(store: Store, till: Till) -> None:
    """Nothing more is made, and every call has its result."""
    calls = [tool_call("pay", amount=1), tool_call("pay", amount=2)]
    agent = till.agent(store, calls, human=FakeHuman([Deny("stop it", stop=True)]))

    await agent.run("Pay", id="s")

    state = await store.load("s")
    assert isinstance(state.stopped, StoppedByPermission)
    assert [result.outcome for result in state.messages[2].tool_results] == ["denied", "cancelled"]
    assert till.paid == []
    await check_closed(store, state)


@pytest.mark.asyncio_only
async def test_a_cancel_during_the_question_leaves_the_state_waiting(store: Store, till: Till) -> None:
    """Valid, listed, and given up: another process answers and goes on."""
    asked = anyio.Event()

    async def never(request: PendingApproval) -> bool:
        asked.set()
        await anyio.sleep_forever()
        return True

    @tool(read_only=True)
    def look() -> str:
        """Look."""
        return "seen"

    tools = [till.pay, look]
    calls = [tool_call("look"), tool_call("pay", amount=5)]
    agent = till.agent(store, calls, human=FakeHuman(never), tools=tools)
    task = asyncio.create_task(agent.run("Pay", id="s"))
    await wait_for(asked)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task

    state = await store.load("s")
    assert (isinstance(state.stopped, WaitingForApproval), state.status) == (True, "waiting")
    assert (await store.info("s")).lease_until is None
    (waiting,) = await store.approvals()
    await store.approve("s", waiting.call_id, by="Ada")
    assert await till.agent(store, tools=tools).resume("s") == "All done."
    assert till.paid == [5]
    assert outcomes(await store.load("s")) == {"look": "ok", "pay": "ok"}


async def test_a_person_that_fails_leaves_the_state_waiting(store: Store, till: Till) -> None:
    """The error is raised; the call is neither made nor closed."""
    agent = till.agent(store, tool_call("pay", amount=5), human=FakeHuman([EOFError("no more input")]))

    with pytest.raises(EOFError):
        await agent.run("Pay", id="s")

    assert ((await store.load("s")).status, till.paid) == ("waiting", [])


@pytest.mark.parametrize("answer", ["yes", None, 1, Ask()])
async def test_an_answer_that_is_none_allows_nothing(answer: Any, store: Store, till: Till) -> None:
    """What is not Allow, Deny, True or False is an error that says so."""
    agent = till.agent(store, tool_call("pay", amount=5), human=FakeHuman(lambda _request: answer))

    with pytest.raises(ConfigError, match="where Allow"):
        await agent.run("Pay", id="s")

    assert ((await store.load("s")).status, till.paid) == ("waiting", [])


async def test_a_question_ends_when_its_time_is_over(store: Store, till: Till) -> None:
    """The person is not waited for any longer; the call is denied."""

    async def never(request: PendingApproval) -> bool:
        await anyio.sleep_forever()
        return True

    rule = Ask(expires_in=0.01)
    agent = till.agent(store, tool_call("pay", amount=5), "I see.", human=FakeHuman(never), permissions=rule)

    with anyio.fail_after(20):
        assert await agent.run("Pay", id="s") == "I see."

    (decided,) = of(await store.load("s"), ApprovalDecided)
    assert (decided.by, till.paid) == ("expiry", [])


async def test_a_decision_from_elsewhere_takes_the_question_back(store: Store, till: Till) -> None:
    """Whoever is first counts; the person at hand is not waited for."""

    async def slow(request: PendingApproval) -> bool:
        await store.approve(request.state_id, request.call_id, by="Bob, from the web")
        await anyio.sleep_forever()
        return False

    agent = till.agent(store, tool_call("pay", amount=5), human=FakeHuman(slow), lease=0.2)
    agent = agent.copy(model=FakeModel([tool_call("pay", amount=5), "Paid."]))

    with anyio.fail_after(20):
        assert await agent.run("Pay", id="s") == "Paid."

    (decided,) = of(await store.load("s"), ApprovalDecided)
    assert (decided.by, till.paid) == ("Bob, from the web", [5])


async def test_of_two_answers_at_once_the_first_counts(store: Store, till: Till) -> None:
    """That of the person at hand comes second, and changes nothing."""

    async def late(request: PendingApproval) -> bool:
        await store.deny(request.state_id, request.call_id, by="Bob", reason="no")
        return True

    agent = till.agent(store, tool_call("pay", amount=5), "I see.", human=FakeHuman(late))

    await agent.run("Pay", id="s")

    assert (till.paid, outcomes(await store.load("s"))) == ([], {"pay": "denied"})


async def test_a_state_that_waits_is_answered_by_the_person_at_hand(store: Store, till: Till) -> None:
    """Another process asked; this one has somebody."""
    await till.waiting(store, tool_call("pay", amount=5))

    assert await till.agent(store, human=FakeHuman([True])).resume("s") == "All done."

    assert till.paid == [5]


async def test_a_question_and_its_answer_are_saved(store: Store) -> None:
    """They are in the history and not in the context."""
    human = FakeHuman(answers=["the upper hut"], name="Ada")
    state = State(id="s", messages=[Message.user("Book a hut")])

    answer = await Agent(FakeModel([]), human=human, store=store).ask_human(state, "Which hut?")

    loaded = await store.load("s")
    (asked,) = of(loaded, Asked)
    assert (answer, human.questions) == ("the upper hut", ["Which hut?"])
    assert (asked.of, asked.question, asked.answer) == ("human", "Which hut?", "the upper hut")
    assert [message.text for message in loaded.messages] == ["Book a hut"]
    await check_closed(store, loaded)


async def test_a_tool_may_ask_the_person(store: Store) -> None:
    """In the middle of a turn, in the run that goes on."""

    @tool
    async def book(context: ToolContext) -> str:
        """Book a hut."""
        return f"booked {await agent.ask_human(context.state, 'Which hut?')}"

    model = FakeModel([tool_call("book"), "Booked."])
    agent = Agent(model, tools=[book], human=FakeHuman(answers=["the lower one"]), store=store)

    assert await agent.run("Book", id="s") == "Booked."

    state = await store.load("s")
    assert results(state) == ["booked the lower one"]
    assert kinds(state).count("asked") == kinds(state).count("run_started") == 1


async def test_asking_nobody_is_an_error_that_says_so() -> None:
    """And so are an empty question, and what is no person."""
    state = State(messages=[Message.user("Hello")])
    with pytest.raises(ConfigError, match=r"Agent\(model, human=…\)"):
        await Agent(FakeModel([])).ask_human(state, "Which hut?")
    with pytest.raises(ConfigError, match="a question is a text"):
        await Agent(FakeModel([]), human=FakeHuman()).ask_human(state, " ")
    with pytest.raises(ConfigError, match="is no Human"):
        Agent(FakeModel([]), human="Ada")


async def test_a_fake_person_has_what_was_prepared() -> None:
    """In order, and an error where there is nothing left."""
    human = FakeHuman([], answers=["one", lambda question: question.upper()])

    assert [await human.ask("a"), await human.ask("b")] == ["one", "B"]
    with pytest.raises(ConfigError, match=r"FakeHuman\(answers=\[…\]\)"):
        await human.ask("c")
    with pytest.raises(ConfigError, match="is a list"):
        FakeHuman(answers="yes")
    with pytest.raises(ConfigError, match="is a list"):
        FakeHuman(True)
    assert isinstance(human, Human)
