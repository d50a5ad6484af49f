"""
Runs: an Agent whose store this is runs, stops and goes on.
"""

from __future__ import annotations

from contextlib import suppress

import anyio

from alpineagents.agent import Agent
from alpineagents.errors import StateBusyError, StateConflictError
from alpineagents.events import ModelRequested, RunStarted
from alpineagents.messages import Message, Request
from alpineagents.stopped import WaitingForApproval
from alpineagents.stores.base import Store
from alpineagents.testing.model import FakeModel, tool_call
from alpineagents.testing.rules.base import Rules, fresh, patience, said
from alpineagents.tools.base import tool


@tool
async def measure(peak: str) -> str:
    """Tell how high a peak is."""
    return f"{peak} is 4,478 m high"


class RunRules(Rules):
    """Rules of a store as an Agent uses it."""

    async def test_a_run_is_kept_and_goes_on(self, store: Store) -> None:
        """Step by step; another process loads the State as the run left it, and goes on with it."""
        name = fresh("contract")
        model = FakeModel([tool_call("measure", peak="Matterhorn"), "4,478 m", "You are welcome"])
        agent = Agent(model, tools=[measure], store=store)

        with patience():
            first = await agent.run("How high is the Matterhorn?", id=name)
            left = await store.load(name)
            second = await agent.resume(name, "Thank you")

        assert (first, second) == ("4,478 m", "You are welcome"), f"the run answered {first!r}, then {second!r}"
        kinds = [event.kind for event in left.history]
        assert kinds == [
            *("message_added", "run_started", "model_requested", "model_replied", "tool_started", "tool_finished"),
            *("model_requested", "model_replied", "run_stopped"),
        ], f"a run with one call left {kinds}"
        assert left.answer == "4,478 m", f"loaded after the run, the State's answer is {left.answer!r}"
        history = (await store.load(name)).history
        assert history[: left.revision] == left.history, "what the first run had saved has changed since"
        assert len(model.requests[-1].messages) == 5, "the second run did not show the model what was said before"

    async def test_a_message_that_comes_during_a_run_is_taken_in(self, store: Store) -> None:
        """The run meets it at its next append, folds it in before its own Events, and answers it."""
        name = fresh("contract")

        async def respond(_: Request) -> str:
            if len(model.requests) == 1:
                await store.post(name, Message.user("And the Eiger?"))
            return f"answer {len(model.requests)}"

        model = FakeModel(respond)
        with patience():
            answer = await Agent(model, store=store).run("How high is the Matterhorn?", id=name)

        words = [message.text for message in (await store.load(name)).messages if message.role == "user"]
        assert words == ["How high is the Matterhorn?", "And the Eiger?"], f"what was said is {words}"
        assert answer == "answer 2", f"the run ended with {answer!r} before it answered what was posted"

    async def test_a_call_waits_for_an_approval(self, store: Store) -> None:
        """The run ends; after the decision, whoever resumes the State makes the call."""
        paid: list[int] = []

        @tool(needs_approval=True)
        async def pay(amount: int) -> str:
            """Pay an amount."""
            paid.append(amount)
            return "paid"

        name = fresh("contract")
        agent = Agent(FakeModel([tool_call("pay", amount=5), "It is paid"]), tools=[pay], store=store)
        with patience():
            await agent.run("Pay 5", id=name)
            waiting = await store.load(name)
            assert isinstance(waiting.stopped, WaitingForApproval), f"the run stopped by {waiting.stopped!r}"
            assert paid == [], "the call was made without an approval"
            await store.approve(name, waiting.pending_calls[0].id, by="Heidi")
            answer = await agent.resume(name)

        assert (answer, paid) == ("It is paid", [5]), f"after the approval the run answered {answer!r} and paid {paid}"

    async def test_a_run_that_died_is_carried_on(self, store: Store) -> None:
        """Loaded in mid-turn, the State is repaired, and the model is asked again."""
        state = said("How high is the Matterhorn?")
        state.run_id = "died"
        state.record(RunStarted, agent=Agent(FakeModel([])).describe())
        state.record(ModelRequested, model="fake")
        await store.save(state)

        with patience():
            answer = await Agent(FakeModel(["4,478 m"]), store=store).resume(state.id)

        assert answer == "4,478 m", f"the next run answered {answer!r}"
        kinds = [event.kind for event in (await store.load(state.id)).history]
        assert "model_failed" in kinds, f"the request that nobody answered is not closed in {kinds}"

    async def test_a_second_run_is_refused_before_the_model_is_asked(self, store: Store) -> None:
        """While the first goes on, in whatever process."""
        await self.needs_leases(store)
        state, begun, end = said("Begin"), anyio.Event(), anyio.Event()

        async def respond(_: Request) -> str:
            begun.set()
            await end.wait()
            return "first"

        async def run_first() -> None:
            # Without a lease it is the first run that meets the second one's Events.
            with suppress(StateConflictError):
                await Agent(FakeModel(respond), store=store).run(state)

        second = FakeModel(["second"])
        refusals: list[StateBusyError] = []
        with patience():
            async with anyio.create_task_group() as group:
                group.start_soon(run_first)
                await begun.wait()
                try:
                    await Agent(second, store=store).resume(state.id, "Me too")
                except StateBusyError as error:
                    refusals.append(error)
                end.set()

        assert refusals, "a second run began while the first went on: see the rules of leases"
        assert second.requests == [], "the model of a run that was refused was asked"
