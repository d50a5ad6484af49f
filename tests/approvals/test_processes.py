"""Approvals between real processes: one asks, one decides, one goes on, and none does a thing twice."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import anyio
import pytest

from alpineagents import ApprovalDecided
from alpineagents.testing import tool_call
from tests.agent.parts import complaints, of
from tests.agent.processes import SECONDS
from tests.approvals.parts import Till, at_once
from tests.contract.backends import Backend

pytestmark = pytest.mark.slow

LATE = {"StateBusyError", "StateConflictError"}


async def test_of_processes_that_decide_at_once_one_wins(shared: Backend) -> None:
    """The others get the named error; the history has the one decision."""
    async with shared.open() as store:
        (call,) = (await Till().waiting(store, tool_call("pay", amount=5))).pending_calls

    ends = at_once(shared, [("approve", call.id, "Ada"), ("deny", call.id, "Bob"), ("approve", call.id, "Eve")])

    async with shared.open() as store:
        (decided,) = of(await store.load("s"), ApprovalDecided)
    assert Counter(ends)["AlreadyDecidedError"] == 2
    assert f"{'approve' if decided.approved else 'deny'} by {decided.by}" in ends


async def test_of_processes_that_go_on_at_once_one_pays(shared: Backend, tmp_path: Path) -> None:
    """Two that continue one approved State: the payment is made once, and the history is whole."""
    async with shared.open() as store:
        (call,) = (await Till().waiting(store, tool_call("pay", amount=5))).pending_calls
        await store.approve("s", call.id, by="Ada")

    ends = at_once(shared, [("resume", str(tmp_path))] * 3)

    assert (tmp_path / "paid").read_text().splitlines() == ["5"]
    assert "All done." in ends
    assert set(ends) <= {"All done.", *LATE}
    async with shared.open() as store:
        assert complaints((await store.load("s")).messages) == []


async def test_a_question_outlives_the_process_that_asked(shared: Backend, tmp_path: Path) -> None:
    """It is listed by another process, answered by a third, and the call is made by a fourth."""
    async with shared.open() as store:
        await store.list()  # the tables are there before the processes start

    assert at_once(shared, [("run", str(tmp_path))]) == ["waiting"]
    (listed,) = at_once(shared, [("list",)])
    async with shared.open() as store:
        (waiting,) = await store.approvals()
    assert listed == str([f"s {waiting.call_id} pay {{'amount': 5}}"])
    assert not (tmp_path / "paid").exists()
    assert at_once(shared, [("approve", waiting.call_id, "Ada")]) == ["approve by Ada"]
    assert at_once(shared, [("resume", str(tmp_path))]) == ["All done."]
    assert (tmp_path / "paid").read_text().splitlines() == ["5"]


async def test_a_question_outlives_the_process_that_died_while_it_was_put(shared: Backend, tmp_path: Path) -> None:
    """Once its lease is over the question is listed, and decided by whoever sees it."""
    async with shared.open() as store:
        await store.list()  # the tables are there before the process starts

        assert at_once(shared, [("die", str(tmp_path))]) == [""]
        with anyio.fail_after(SECONDS):
            while not (pending := await store.approvals()):
                await anyio.sleep(0.05)
        await store.approve("s", pending[0].call_id, by="Ada")

        assert [(each.state_id, each.args) for each in pending] == [("s", {"amount": 5})]
        assert await store.approvals() == []
    assert at_once(shared, [("resume", str(tmp_path))]) == ["All done."]
    assert (tmp_path / "paid").read_text().splitlines() == ["5"]
