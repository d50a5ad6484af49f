"""Agents that work for other Agents: children with logs of their own."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import anyio
import pytest

from alpineagents import (
    Agent,
    AlreadyDecidedError,
    ApprovalError,
    ConfigError,
    FileStore,
    MemoryStore,
    Message,
    Request,
    State,
    StateBusyError,
    StoppedByCancel,
    StoppedByPermission,
    Store,
    ToolCall,
    ToolContext,
    ToolDefinitionError,
    ToolFinished,
    ToolStarted,
    WaitingForApproval,
    loop,
    tool,
    waiting_for_user,
)
from alpineagents.permissions import Allow, allow, ask, deny
from alpineagents.subagents import child_id
from alpineagents.testing import FakeHuman, FakeModel, tool_call
from tests.agent.parts import check_closed, kinds, of, outcomes, results, wait_for


class Till:
    """
    Where is paid, once a person has agreed.

    Attributes:
        paid: the amounts, in order.
    """

    def __init__(self, **flags: Any) -> None:
        self.paid: list[int] = []

        @tool(**({"needs_approval": True} | flags))
        async def pay(amount: int) -> str:
            """Pay an amount."""
            self.paid.append(amount)
            return f"paid {amount}"

        self.pay = pay

    def clerk(self, *amounts: int, **settings: Any) -> Agent:
        """Return an Agent that pays as it is told in its prompt."""

        def respond(request: Request) -> Any:
            done = any(message.tool_results for message in request.messages)
            return "It is paid." if done else tool_call("pay", amount=int(request.messages[0].text))

        return Agent(FakeModel(respond), tools=[self.pay], **{"name": "clerk", **settings})


def head(*prompts: str, to: str = "clerk", end: str = "All done.") -> FakeModel:
    """Return a model that asks a subagent for each prompt, in one turn, and then ends."""

    def respond(request: Request) -> Any:
        asked = any(message.tool_calls for message in request.messages)
        return end if asked else [tool_call(to, prompt=prompt) for prompt in prompts]

    return FakeModel(respond)


async def children_of(store: Store, id: str) -> list[State]:
    return [await store.load(info.id) for info in await store.list() if info.parent_id == id]


async def test_an_agent_in_tools_is_a_child_with_a_log_of_its_own(store: Store) -> None:
    """Its name and description make the tool, its answer is the result, and each log names the other."""
    guide = Agent(FakeModel(["It is 4,478 m high."]), name="guide", description="Knows peaks.")
    model = FakeModel([tool_call("guide", prompt="How high?"), "4,478 m."])
    agent = Agent(model, tools=[guide], store=store)

    assert await agent.run("Ask the guide", id="s") == "4,478 m."

    state = await store.load("s")
    [child] = await children_of(store, "s")
    [begun], [ended] = of(state, ToolStarted), of(state, ToolFinished)
    spec = model.requests[0].tools[0]
    assert (spec.name, spec.description) == ("guide", "Knows peaks.")
    assert child.id == child_id("s", begun.call_id) == begun.child_id == ended.children[0]
    assert (child.is_child, child.is_fork, state.is_child, state.is_fork) == (True, False, False, False)
    assert child.snapshot().parent is not None
    assert (child.snapshot().parent.state_id, child.snapshot().parent.call_id) == ("s", begun.call_id)
    assert [message.text for message in child.messages] == ["How high?", "It is 4,478 m high."]
    assert results(state) == ["It is 4,478 m high."]
    await check_closed(store, child)


async def test_what_children_take_is_counted_once(store: Store) -> None:
    """At the parent with the result; a child of a child with its own; a fork begins with the sum."""
    inner = Agent(FakeModel(["deep"]), name="inner")
    outer = Agent(head("go", to="inner", end="out"), tools=[inner], name="outer")
    agent = Agent(head("go", to="outer"), tools=[outer], store=store)

    await agent.run("Go", id="s")
    await store.fork("s", "t")

    usages = {info.id: info.usage.requests for info in await store.list()}
    assert sorted(usages.values()) == [1, 3, 5, 5]
    assert usages["s"] == usages["t"] == (await store.load("s")).usage.requests == 5


async def test_a_fork_of_a_child_is_no_child(store: Store) -> None:
    """It serves no call, although its history says that it did: it goes its own way."""
    agent = Agent(head("Go", to="guide"), tools=[Agent(FakeModel(["Hi"]), name="guide")], store=store)
    await agent.run("Ask", id="s")
    [child] = await children_of(store, "s")

    await store.fork(child.id, "copy")

    for fork in (child.fork(id="f"), await store.load("copy")):
        assert (fork.is_child, fork.is_fork, fork.parent_id) == (False, True, child.id)
    from_a_store_without_parents = State.from_history(child.id, child.history)
    assert (from_a_store_without_parents.is_child, from_a_store_without_parents.is_fork) == (True, False)


async def test_without_a_store_a_child_lives_in_memory() -> None:
    """What it took is counted all the same."""
    state = State(messages=[Message.user("Go")])

    await Agent(head("go", to="guide"), tools=[Agent(FakeModel(["Hi"]), name="guide")]).run(state)

    assert state.usage.requests == 3
    assert results(state) == ["Hi"]


@pytest.mark.parametrize("anyio_backend", ["trio"])
@pytest.mark.parametrize("kind", ["memory", "files"])
async def test_subagents_run_on_trio(kind: str, tmp_path: Path) -> None:
    """In parallel, with an approval, and cancelled in the middle."""
    async with MemoryStore() if kind == "memory" else FileStore(tmp_path / "runs") as there:
        till = Till()
        agent = Agent(head("5", "7"), tools=[till.clerk()], store=there)
        assert await agent.run("Go", id="s") is None
        for waiting in await there.approvals():
            await there.approve("s", waiting.call_id, by="Ada")
        assert await agent.resume("s") == "All done."
        assert sorted(till.paid) == [5, 7]

        with anyio.move_on_after(0.2):
            guide = Agent(FakeModel(lambda _request: anyio.sleep_forever()), name="guide")
            await Agent(head("go", to="guide"), tools=[guide], store=there).run("Go", id="t")
        [child] = await children_of(there, "t")
        await check_closed(there, child)
        assert child.stopped == StoppedByCancel()


async def test_a_run_started_in_a_tool_is_a_child(store: Store) -> None:
    """Several of one call are told apart, also where they run at the same time."""
    helper = Agent(FakeModel(lambda request: request.messages[-1].text.upper()), name="helper")

    @tool(idempotent=True)
    async def research(context: ToolContext) -> str:
        """Look at two things."""
        found: dict[str, Any] = {}

        async def look(what: str) -> None:
            found[what] = await helper.run(what, context=context)

        async with anyio.create_task_group() as group:
            group.start_soon(look, "alps")
            group.start_soon(look, "lakes")
        return f"{found['alps']} {found['lakes']}"

    agent = Agent(FakeModel([tool_call("research"), "done"]), tools=[research], store=store)
    await agent.run("Go", id="s")

    state = await store.load("s")
    [ended] = of(state, ToolFinished)
    assert results(state) == ["ALPS LAKES"]
    assert sorted(ended.children) == sorted(child.id for child in await children_of(store, "s"))
    assert (len(ended.children), state.usage.requests) == (2, 4)


@pytest.mark.parametrize("flags", [{}, {"read_only": True, "needs_approval": True}])
async def test_a_tool_that_runs_an_agent_says_that_it_may_be_called_again(flags: dict[str, bool]) -> None:
    """Else it could not go on after a crash or an approval; the error shows the line to write."""
    helper = Agent(FakeModel(["Hi"]), name="helper")

    @tool(**flags)
    async def research(context: ToolContext) -> Any:
        """Look."""
        return await helper.run("Look", context=context)

    agent = Agent(FakeModel([tool_call("research"), "done"]), tools=[research], human=FakeHuman([True]))
    if flags:
        assert await agent.run("Go") == "done"
    else:
        with pytest.raises(ConfigError, match=r"@tool\(idempotent=True\)"):
            await agent.run("Go")


def test_an_agent_without_a_name_is_no_tool() -> None:
    """The model could not call it; the error shows the line to write."""
    with pytest.raises(ToolDefinitionError, match='name="researcher"'):
        Agent(FakeModel([]), tools=[Agent(FakeModel([]))])


async def test_a_child_that_has_no_answer_is_told_to_the_model(store: Store) -> None:
    """With why it stopped; the parent goes on."""

    @loop(until=waiting_for_user, limit=1)
    async def once(agent: Agent, state: State) -> None:
        await agent.think(state)
        await agent.use_tools(state)

    clerk = Till(needs_approval=False).clerk(loop=once)
    agent = Agent(head("5"), tools=[clerk], store=store)

    assert await agent.run("Go", id="s") == "All done."

    assert results(await store.load("s")) == ["clerk has no answer: stopped at the limit of 1 turns"]


async def test_children_beyond_the_limit_wait_for_their_turn() -> None:
    """No more than `max_subagents` work at the same time, and all come to their end."""
    working, most = 0, 0
    both = anyio.Event()

    async def respond(request: Request) -> str:
        nonlocal working, most
        working += 1
        most = max(most, working)
        if working == 2:
            both.set()
        await wait_for(both)
        await anyio.lowlevel.checkpoint()
        working -= 1
        return "Hi"

    guide = Agent(FakeModel(respond), name="guide")
    state = State(messages=[Message.user("Go")])

    await Agent(head(*"abcdef", to="guide"), tools=[guide], max_subagents=2).run(state)

    assert most == 2
    assert results(state) == ["Hi"] * 6


# ------------------------------------------------------------------------------------------------ permissions


@pytest.mark.parametrize(
    "above, below, outcome",
    [
        (deny("pay"), None, "denied"),
        (allow("clerk"), None, "denied"),
        (allow(), deny("pay"), "denied"),
        (allow(), allow(), "ok"),
        (lambda call: 1 / 0 if call.name == "pay" else Allow(), allow(), "denied"),
    ],
    ids=["above denies", "above says nothing", "below denies", "both allow", "above fails"],
)
async def test_a_child_may_what_all_above_it_allow(above: Any, below: Any, outcome: str, store: Store) -> None:
    """A denial wins, and rules above that say nothing refuse."""
    till = Till(needs_approval=False)
    rules = [above] if outcome == "ok" or "clerk" in repr(above) else [above, allow()]
    agent = Agent(head("5"), tools=[till.clerk(permissions=below)], store=store, permissions=rules)

    await agent.run("Go", id="s")

    [child] = await children_of(store, "s")
    assert outcomes(child) == {"pay": outcome}
    assert till.paid == ([5] if outcome == "ok" else [])


async def test_a_rule_above_edits_what_a_child_calls(store: Store) -> None:
    """The arguments are those that the outermost rule has set."""
    till = Till(needs_approval=False)
    above = lambda call: Allow(args={"amount": call.args["amount"] * 10}) if call.name == "pay" else Allow()  # noqa: E731  # a rule in a line
    clerk = till.clerk(permissions=lambda call: Allow(args={"amount": 7}))

    await Agent(head("5"), tools=[clerk], store=store, permissions=above).run("Go", id="s")

    assert till.paid == [70]


async def test_an_edit_beside_a_question_makes_nothing(store: Store) -> None:
    """The person would be shown other arguments than those of the call."""
    till = Till(needs_approval=False)
    clerk = till.clerk(permissions=lambda call: Allow(args={"amount": 7}))

    await Agent(head("5"), tools=[clerk], store=store, permissions=[allow("clerk"), ask("pay")]).run("Go", id="s")

    assert till.paid == []
    assert await store.approvals() == []


async def test_a_rule_above_that_ends_the_run_ends_it_above_too(store: Store) -> None:
    """Both logs say so, and no model is asked again."""
    till = Till(needs_approval=False)
    agent = Agent(head("5"), tools=[till.clerk()], store=store, permissions=[deny("pay", stop=True), allow()])

    assert await agent.run("Go", id="s") is None

    [child] = await children_of(store, "s")
    assert isinstance((await store.load("s")).stopped, StoppedByPermission)
    assert isinstance(child.stopped, StoppedByPermission)
    assert till.paid == []


# ------------------------------------------------------------------------------------------------ approvals


@pytest.mark.parametrize("by_parent", [False, True], ids=["by the child's id", "by the parent's id"])
async def test_approvals_of_a_child_surface_at_the_parent(
    by_parent: bool, store: Store, another: Callable[[], Store]
) -> None:
    """Listed once, named in why the parent stopped, decided once by either id; the next run goes on just there."""
    till = Till()
    assert await Agent(head("5"), tools=[till.clerk()], store=store).run("Go", id="s") is None

    other = another()
    [waiting] = await other.approvals()
    state = await other.load("s")
    assert waiting.parent_id == "s"
    assert state.stopped == WaitingForApproval(
        call_ids=(waiting.call_id,), children={waiting.state_id: (waiting.call_id,)}
    )
    assert state.status == "waiting"
    await other.approve("s" if by_parent else waiting.state_id, waiting.call_id, by="Ada")
    with pytest.raises(AlreadyDecidedError):
        await other.deny("s", waiting.call_id, by="Bob", reason="no")

    assert {info.id for info in await other.list(status="ready")} == {"s", waiting.state_id}
    assert (await other.load("s")).status == "ready"
    assert await Agent(head("5"), tools=[till.clerk()], store=other).resume("s") == "All done."

    assert till.paid == [5]
    state, child = await other.load("s"), await other.load(waiting.state_id)
    assert (state.usage.requests, child.usage.requests) == (4, 2)
    assert len(await children_of(other, "s")) == 1
    await check_closed(other, state)


async def test_children_of_one_turn_are_decided_one_by_one(store: Store) -> None:
    """Those that need nobody come to their end; the parent is ready once the last is decided."""
    till = Till()
    guide = Agent(FakeModel(["Up."]), name="guide")

    def respond(request: Request) -> Any:
        asked = any(message.tool_calls for message in request.messages)
        calls = [tool_call("clerk", prompt="5"), tool_call("guide", prompt="?"), tool_call("clerk", prompt="7")]
        return "All done." if asked else calls

    agent = Agent(FakeModel(respond), tools=[till.clerk(), guide], store=store)
    assert await agent.run("Go", id="s") is None

    five, seven = sorted(await store.approvals(), key=lambda each: str(each.args))
    await store.approve(five.state_id, five.call_id, by="Ada")
    assert (await store.info("s")).status == "waiting"
    await store.deny(seven.state_id, seven.call_id, by="Ada", reason="too much")
    assert (await store.info("s")).status == "ready"

    assert await agent.resume("s") == "All done."
    assert till.paid == [5]
    assert results(await store.load("s")) == ["It is paid.", "Up.", "It is paid."]


async def test_approvals_surface_through_several_levels(store: Store) -> None:
    """The one at the top names the State in which the decision counts, and hears of it."""
    till = Till()
    chief = Agent(head("5", end="chief is done"), tools=[till.clerk()], name="chief")
    agent = Agent(head("do it", to="chief"), tools=[chief], store=store)
    assert await agent.run("Go", id="s") is None

    [waiting] = await store.approvals()
    assert (await store.load("s")).stopped == WaitingForApproval(
        call_ids=(waiting.call_id,), children={waiting.state_id: (waiting.call_id,)}
    )
    await store.approve("s", waiting.call_id, by="Ada")
    assert (await store.info("s")).status == "ready"

    assert await agent.resume("s") == "All done."
    assert till.paid == [5]
    assert (await store.load("s")).usage.requests == 6


@pytest.mark.parametrize("by_parent", [False, True])
async def test_a_decision_that_comes_while_the_parent_works_is_taken_in(by_parent: bool, store: Store) -> None:
    """The child goes on in the same run, which does not stop for it; either State's id names the call."""
    till = Till()
    decided = anyio.Event()

    @tool
    async def wait() -> str:
        """Wait until somebody has decided."""
        while not (pending := await store.approvals()):
            await anyio.sleep(0.01)
        await store.approve("s" if by_parent else pending[0].state_id, pending[0].call_id, by="Ada")
        decided.set()
        return "waited"

    def respond(request: Request) -> Any:
        asked = any(message.tool_calls for message in request.messages)
        return "All done." if asked else [tool_call("clerk", prompt="5"), tool_call("wait")]

    agent = Agent(FakeModel(respond), tools=[till.clerk(), wait], store=store)
    with anyio.fail_after(20):
        assert await agent.run("Go", id="s") == "All done."

    assert decided.is_set()
    assert till.paid == [5]
    assert kinds(await store.load("s")).count("run_started") == 1


async def test_two_children_whose_calls_have_one_id_are_told_apart(store: Store) -> None:
    """A provider may give both the same; the id of the parent does not say which is meant, and the error names both."""
    till = Till()

    def respond(request: Request) -> Any:
        done = any(message.tool_results for message in request.messages)
        call = ToolCall(id="call_1", name="pay", args={"amount": int(request.messages[0].text)})
        return "It is paid." if done else call

    clerk = Agent(FakeModel(respond), tools=[till.pay], name="clerk")
    agent = Agent(head("5", "7"), tools=[clerk], store=store)
    await agent.run("Go", id="s" * 128)

    five, seven = sorted(await store.approvals(), key=lambda each: str(each.args))
    with pytest.raises(ApprovalError, match=f"name one: .*{five.state_id}"):
        await store.approve("s" * 128, "call_1", by="Ada")
    await store.approve(seven.state_id, "call_1", by="Ada")
    await store.deny(five.state_id, "call_1", by="Ada", reason="no")

    assert await agent.resume("s" * 128) == "All done."
    assert till.paid == [7]


@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_a_call_below_that_the_parent_has_not_heard_of_can_be_named_by_it(store: Store) -> None:
    """A tool that gathers children ends with the first that waits; what the others wait for is listed and decided."""
    till, waiting = Till(), anyio.Event()
    clerk = till.clerk()

    async def pay_each(context: ToolContext) -> str:
        """Pay two amounts at once."""

        async def run(amount: str) -> None:
            try:
                await clerk.run(amount, context=context)
            finally:
                if len(await store.approvals()) == 2:
                    waiting.set()

        return str(len(await asyncio.gather(run("5"), run("7"))))

    agent = Agent(FakeModel([tool_call("pay_each"), "All done."]), tools=[tool(pay_each, idempotent=True)], store=store)
    assert await agent.run("Go", id="s") is None
    await wait_for(waiting)

    pending = await store.approvals()
    for each in pending:
        await store.approve("s", each.call_id, by="Ada")

    assert {each.parent_id for each in pending} == {"s"}
    assert await agent.resume("s") == "All done."
    assert sorted(till.paid) == [5, 7]


async def test_a_call_of_nobody_is_no_call_of_a_child(store: Store) -> None:
    """The error names what waits."""
    await Agent(head("5"), tools=[Till().clerk()], store=store).run("Go", id="s")

    with pytest.raises(ApprovalError, match="has no such call"):
        await store.approve("s", "call_no", by="Ada")


async def test_the_person_above_is_asked_for_a_child(store: Store) -> None:
    """A person at hand at the parent is at hand for those that work for it, too, one question at a time."""
    till = Till()
    asking = 0

    async def decide(request: Any) -> bool:
        nonlocal asking
        asking += 1
        assert asking == 1
        await anyio.lowlevel.checkpoint()
        asking -= 1
        return True

    agent = Agent(head("5", "7"), tools=[till.clerk()], store=store, human=FakeHuman(decide))

    assert await agent.run("Go", id="s") == "All done."
    assert sorted(till.paid) == [5, 7]


# ------------------------------------------------------------------------------------------------ the end of a parent


@pytest.mark.parametrize("how", ["task", "request"])
async def test_a_cancel_reaches_the_child(how: str, store: Store) -> None:
    """Its log is closed, its call is interrupted, and what it took is counted."""
    asked = anyio.Event()

    async def stall(request: Request) -> str:
        asked.set()
        await anyio.sleep_forever()
        return "never"

    agent = Agent(head("go", to="guide"), tools=[Agent(FakeModel(stall), name="guide")], store=store, lease=0.4)
    with anyio.fail_after(20):
        async with anyio.create_task_group() as group:
            group.start_soon(lambda: agent.run("Go", id="s"))
            await wait_for(asked)
            if how == "task":
                group.cancel_scope.cancel()
            else:
                await store.cancel("s", by="Ada")

    state = await store.load("s")
    [child] = await children_of(store, "s")
    by = "" if how == "task" else "Ada"
    assert state.stopped == child.stopped == StoppedByCancel(by=by)
    assert outcomes(state) == {"guide": "interrupted"}
    assert state.usage.requests == 1 + child.usage.requests
    await check_closed(store, child)
    await check_closed(store, state)


async def test_a_request_to_cancel_a_child_ends_that_child(store: Store) -> None:
    """The parent's model is told by whom, and goes on."""
    asked = anyio.Event()

    async def stall(request: Request) -> str:
        asked.set()
        await anyio.sleep_forever()
        return "never"

    guide = Agent(FakeModel(stall), name="guide")
    agent = Agent(head("go", to="guide"), tools=[guide], store=store, lease=0.4)
    with anyio.fail_after(20):
        async with anyio.create_task_group() as group:
            group.start_soon(lambda: agent.run("Go", id="s"))
            await wait_for(asked)
            [child] = await children_of(store, "s")
            await store.cancel(child.id, by="Ada")

    assert results(await store.load("s")) == ["guide has no answer: cancelled by Ada"]


async def test_a_child_that_nobody_needs_any_more_waits_no_longer(store: Store) -> None:
    """Its parent failed, so no run would go on with what a person decides."""

    @tool
    async def fail() -> None:
        """Fail."""
        raise OSError("no disk")

    model = FakeModel([[tool_call("clerk", prompt="5"), tool_call("fail")]])
    with pytest.raises(OSError, match="no disk"):
        await Agent(model, tools=[Till().clerk(), fail], store=store).run("Go", id="s")

    [child] = await children_of(store, "s")
    assert child.stopped == StoppedByCancel()
    assert outcomes(child) == {"pay": "cancelled"}
    assert await store.approvals() == []
    await check_closed(store, child)


async def test_a_cancel_closes_the_child_that_waits_too(store: Store) -> None:
    """One waits for a person while another call of the turn works; nobody is asked any more."""
    works = anyio.Event()

    @tool
    async def wait() -> None:
        """Wait until the other call waits, and then for ever."""
        while not await store.approvals():
            await anyio.sleep(0.01)
        works.set()
        await anyio.sleep_forever()

    model = FakeModel([[tool_call("clerk", prompt="5"), tool_call("wait")]])
    with anyio.fail_after(20):
        async with anyio.create_task_group() as group:
            group.start_soon(lambda: Agent(model, tools=[Till().clerk(), wait], store=store).run("Go", id="s"))
            await wait_for(works)
            group.cancel_scope.cancel()

    [child] = await children_of(store, "s")
    state = await store.load("s")
    assert await store.approvals() == []
    assert outcomes(child) == {"pay": "cancelled"}
    assert outcomes(state) == {"clerk": "interrupted", "wait": "interrupted"}
    assert state.usage.requests == 2
    await check_closed(store, child)


async def test_a_question_beside_leaves_the_child_waiting(store: Store) -> None:
    """What is done with the parent meanwhile does not take the call of the child back."""
    till = Till()
    agent = Agent(head("5"), tools=[till.clerk()], store=store, human=None)
    await agent.run("Go", id="s")
    [waiting] = await store.approvals()

    state = await store.load("s")
    await agent.copy(human=FakeHuman(answers=["yes"])).ask_human(state, "Is it urgent?")

    await store.approve(waiting.state_id, waiting.call_id, by="Ada")
    assert await agent.resume("s") == "All done."
    assert till.paid == [5]


async def test_a_run_that_is_refused_leaves_the_children_alone(store: Store, another: Callable[[], Store]) -> None:
    """Another run has the State, and its children with it."""
    asked = anyio.Event()

    @tool
    async def wait() -> None:
        """Wait for ever, once the other call waits."""
        while not await store.approvals():
            await anyio.sleep(0.01)
        asked.set()
        await anyio.sleep_forever()

    model = FakeModel([[tool_call("clerk", prompt="5"), tool_call("wait")]])
    agent = Agent(model, tools=[Till().clerk(), wait], store=store)
    with anyio.fail_after(20):
        async with anyio.create_task_group() as group:
            group.start_soon(lambda: agent.run("Go", id="s"))
            await wait_for(asked)
            with pytest.raises(StateBusyError):
                await agent.copy(store=another()).resume("s")
            assert len(await store.approvals()) == 1
            group.cancel_scope.cancel()


async def test_a_fork_can_open_the_children(store: Store) -> None:
    """Its history names them, and they are where they were; nothing of them is copied."""
    await Agent(head("go", to="guide"), tools=[Agent(FakeModel(["Hi"]), name="guide")], store=store).run("Go", id="s")

    await store.fork("s", "t")

    [ended] = of(await store.load("t"), ToolFinished)
    assert (await store.load(ended.children[0])).answer == "Hi"
    assert await children_of(store, "s") != []
    assert sorted(info.id for info in await store.list()) == sorted(["s", "t", ended.children[0]])


async def test_a_fork_does_not_take_over_a_child_that_works(store: Store) -> None:
    """The child serves the first State; in the fork, the outcome of that call is unknown."""
    till = Till()
    await Agent(head("5"), tools=[till.clerk()], store=store).run("Go", id="s")
    await store.fork("s", "t")

    assert await Agent(head("5"), tools=[till.clerk()], store=store).resume("t") == "All done."

    fork = await store.load("t")
    assert outcomes(fork) == {"clerk": "unknown"}
    assert fork.usage.requests == 2
    [waiting] = await store.approvals()
    assert waiting.parent_id == "s"


async def test_a_fork_carries_on_the_children_of_its_own_runs(store: Store) -> None:
    """Only what it found open was begun elsewhere."""
    till = Till()

    def boss(request: Request) -> Any:
        last = request.messages[-1]
        if last.tool_results:
            return last.tool_results[0].text
        return tool_call("clerk", prompt="5") if last.text == "Pay" else "Hello"

    agent = Agent(FakeModel(boss), tools=[till.clerk()], store=store)
    await agent.run("Hi", id="s")
    await store.fork("s", "t")
    await agent.resume("t", "Pay")
    [waiting] = await store.approvals()
    await store.approve("t", waiting.call_id, by="Ada")

    assert await agent.resume("t") == "It is paid."

    fork = await store.load("t")
    assert outcomes(fork) == {"clerk": "ok"}
    assert till.paid == [5]


async def test_a_fork_of_a_state_that_waits_for_a_child_is_ready(store: Store) -> None:
    """The child serves the first State, so nobody would ever decide for the fork."""
    till = Till()
    await Agent(head("5"), tools=[till.clerk()], store=store).run("Go", id="s")

    await store.fork("s", "t")
    await store.save((await store.load("s")).fork(id="u"))

    assert {info.id: info.status for info in await store.list() if info.id in "stu"} == {
        "s": "waiting",
        "t": "ready",
        "u": "ready",
    }


async def test_a_decision_counts_in_the_state_whose_id_was_given(store: Store) -> None:
    """A fork has no part in the children of its origin; what waits in its own history is decided for it alone."""
    till = Till()
    await Agent(head("5"), tools=[till.clerk()], store=store).run("Go", id="s")
    [waiting] = await store.approvals()
    await store.fork("s", "fork")
    await store.fork(waiting.state_id, "fork-of-child")
    assert {each.state_id: each.parent_id for each in await store.approvals()} == {
        waiting.state_id: "s",
        "fork-of-child": None,
    }

    with pytest.raises(ApprovalError, match="works for State 's' and not for this fork of it"):
        await store.approve("fork", waiting.call_id, by="Ada")
    await store.approve("fork-of-child", waiting.call_id, by="Ada")

    statuses = {info.id: info.status for info in await store.list()}
    assert statuses == {
        "s": "waiting",
        waiting.state_id: "waiting",
        "fork": "ready",
        "fork-of-child": "ready",
    }
    await store.approve("s", waiting.call_id, by="Ada")
    assert (await store.info("s")).status == "ready"


async def test_a_parent_that_waits_for_its_child_can_be_asked_to_stop(store: Store) -> None:
    """Its next run stops, and so does the child: the question is taken back, and nothing is paid."""
    till = Till()
    agent = Agent(head("5"), tools=[till.clerk()], store=store)
    await agent.run("Pay 5", id="p")
    (asked,) = await store.approvals()
    await store.cancel("p", by="Ada")

    assert await agent.resume("p") is None

    assert (await store.load("p")).stopped == StoppedByCancel(by="Ada")
    assert (await store.info(asked.state_id)).status == "cancelled"
    assert (await store.approvals(), till.paid) == ([], [])


async def test_a_child_is_carried_on_by_its_parent_only(store: Store) -> None:
    """Alone, the rules of its parent would not bind it, and the parent would not hear of its end."""
    till = Till()
    clerk = till.clerk(store=store)
    agent = Agent(head("5"), tools=[clerk], store=store)
    await agent.run("Pay 5", id="p")
    (asked,) = await store.approvals()
    await store.approve("p", asked.call_id, by="Ada")

    with pytest.raises(ConfigError, match=r"serves a call of State 'p'.*resume\('p'\)"):
        await clerk.resume(asked.state_id)

    assert till.paid == []
    assert await agent.resume("p") == "All done."
    assert till.paid == [5]
