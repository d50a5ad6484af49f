"""
The inbox: anyone may add to a State at any time, and nothing is lost.
"""

from __future__ import annotations

import anyio
import anyio.lowlevel

from alpineagents.errors import AlreadyDecidedError, StateConflictError
from alpineagents.events import AgentInfo, ApprovalRequested, ModelReplied, ModelRequested, RunStarted, RunStopped
from alpineagents.messages import Message, ToolCall
from alpineagents.state import State
from alpineagents.stopped import WaitingForApproval
from alpineagents.stores.base import Store
from alpineagents.testing.rules.base import Rules, claim, fresh, patience, refused, said, saved, words_in

ATOMIC = "append() must compare `expected` and write in one step, with no await between that lets another writer in"


def waiting(*call_ids: str) -> State:
    """Return a State in the middle of a turn, whose calls wait for a person."""
    state = said("look")
    state.run_id = "r"
    state.record(RunStarted, agent=AgentInfo(model="m"))
    state.record(ModelRequested, model="m")
    calls = tuple(ToolCall(id=call_id, name="t") for call_id in call_ids)
    state.record(ModelReplied, message=Message(role="assistant", content=calls))
    for call_id in call_ids:
        state.record(ApprovalRequested, call_id=call_id, digest="d")
    return state


async def _steps(count: int) -> None:
    # Two tasks that take turns evenly may never meet; these take their steps in every phase to each other.
    for _ in range(count):
        await anyio.lowlevel.checkpoint()


class InboxRules(Rules):
    """Rules of `post`, `approve`, `deny` and `cancel`, which stand on `info` and `append`."""

    async def test_a_post_returns_its_revision(self, store: Store) -> None:
        """The next one, without the State at hand."""
        state = await saved(store, "one")

        with patience():
            landed = [await store.post(state.id, Message.user(words)) for words in ("two", "three")]

        assert landed == [2, 3], f"two posts behind revision 1 returned {landed}: append() returns the new revision"
        words = await words_in(store, state.id)
        assert words == ["one", "two", "three"], f"the history is {words}"

    async def test_posts_at_once_are_all_kept(self, store: Store) -> None:
        """Each at a revision of its own, without a gap."""
        state = await saved(store, "begin")
        landed: list[int] = []

        async def post(number: int) -> None:
            landed.append(await store.post(state.id, Message.user(str(number))))

        with patience():
            async with anyio.create_task_group() as group:
                for number in range(8):
                    group.start_soon(post, number)

        assert sorted(landed) == [*range(2, 10)], f"eight posts at once landed at {sorted(landed)}: {ATOMIC}"
        words = await words_in(store, state.id)
        assert sorted(words) == sorted(["begin", *map(str, range(8))]), f"eight posts at once left {words}: {ATOMIC}"

    async def test_posts_beside_a_running_save_are_all_kept(self, store: Store) -> None:
        """The saves meet conflicts and load again; neither side loses a message."""
        state = await saved(store, "begin")

        async def post() -> None:
            for number in range(8):
                await _steps(number % 3)
                await store.post(state.id, Message.user(f"posted {number}"))

        async def save() -> None:
            for number in range(8):
                while True:
                    loaded = await store.load(state.id)
                    loaded.add_message(Message.user(f"saved {number}"))
                    await _steps(number % 4)
                    try:
                        await store.save(loaded)
                        break
                    except StateConflictError:
                        continue

        with patience():
            async with anyio.create_task_group() as group:
                group.start_soon(post)
                group.start_soon(save)

        words = await words_in(store, state.id)
        for kind in ("posted", "saved"):
            found = [word for word in words if word.startswith(kind)]
            assert found == [f"{kind} {number}" for number in range(8)], (
                f"of what was {kind}, there is {found}: {ATOMIC}"
            )

    async def test_a_post_into_an_open_turn_waits_for_its_end(self, store: Store) -> None:
        """It is stored at once and enters the context after the results."""
        state = waiting("c1")
        await store.save(state)

        with patience():
            await store.post(state.id, Message.user("hurry"))

        loaded = await store.load(state.id)
        assert loaded.revision == state.revision + 1, "a post into an open turn must be appended like any other"
        assert [message.text for message in loaded.snapshot().queued] == ["hurry"], "the posted message is not there"

    async def test_a_decision_reaches_the_call_that_waits(self, store: Store) -> None:
        """By the call's id, with who decided and why."""
        state = waiting("c1", "c2", "c3")
        await store.save(state)

        with patience():
            await store.approve(state.id, "c3", by="Heidi", note="fine")
            await store.deny(state.id, "c1", by="Peter", reason="too dear")

        calls = (await store.load(state.id)).snapshot().calls
        found = {each: (call.approval, call.decided_by, call.note) for each, call in calls.items()}
        wanted = {
            "c1": ("denied", "Peter", "too dear"),
            "c2": ("requested", "", ""),
            "c3": ("approved", "Heidi", "fine"),
        }
        assert found == wanted, f"after approve() and deny() the calls are {found}, not {wanted}"

    async def test_a_second_decision_is_refused(self, store: Store) -> None:
        """The first counts, and whoever comes second is told so."""
        state = waiting("c1")
        await store.save(state)

        with patience():
            await store.deny(state.id, "c1", by="Peter", reason="too dear")
            with refused(AlreadyDecidedError, "approve() reads the State: read() must give what append() took"):
                await store.approve(state.id, "c1", by="Heidi")

        call = (await store.load(state.id)).snapshot().calls["c1"]
        assert (call.approval, call.decided_by) == ("denied", "Peter"), (
            f"the first decision was Peter's to deny, and the call is {call.approval} by {call.decided_by!r}"
        )

    async def test_what_waits_is_listed(self, store: Store) -> None:
        """Until it is decided on."""
        self.needs(store, "list", "it cannot show which States it holds")
        state = waiting("c1", "c2")
        state.record(RunStopped, stopped=WaitingForApproval(call_ids=("c1", "c2")))
        await store.save(state)

        with patience():
            before = [each.call_id for each in await store.approvals() if each.state_id == state.id]
            await store.approve(state.id, "c1", by="Heidi")
            after = [each.call_id for each in await store.approvals() if each.state_id == state.id]

        assert (before, after) == (["c1", "c2"], ["c2"]), (
            f"approvals() showed {before}, and {after} once 'c1' was decided on: list(status='waiting') must show a "
            "State by the status of its last append"
        )

    async def test_a_request_to_cancel_reaches_the_run(self, store: Store) -> None:
        """With the name of who asked."""
        state = waiting("c1")
        await store.save(state)

        with patience():
            await store.cancel(state.id, by="Heidi", reason="enough")

        found = (await store.load(state.id)).snapshot().cancelled_by
        assert found == "Heidi", f"after cancel(by='Heidi') the State was cancelled by {found!r}"

    async def test_a_post_leaves_the_lease_alone(self, store: Store) -> None:
        """Whoever writes a message does not own the State, nor free it, nor is refused."""
        await self.needs_leases(store)
        self.needs(store, "info", "it cannot say which run owns a State")
        state = said("one", id=fresh("contract"))
        await claim(store, state, "r1")
        before = await store.info(state.id)

        with patience():
            await store.post(state.id, Message.user("faster"))

        after = await store.info(state.id)
        found, wanted = (after.run_id, after.lease_until), (before.run_id, before.lease_until)
        assert found == wanted, (
            f"a post changed (run_id, lease_until) from {wanted} to {found}: header.lease=None keeps them"
        )
