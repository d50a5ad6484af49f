"""Several processes that run one State at the same moment: one of them does."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path

import pytest

from alpineagents import Agent, Message, State, tool
from alpineagents.testing import FakeModel, tool_call
from tests.agent.parts import Place, complaints, kinds
from tests.agent.processes import SECONDS, started

PROCESSES = 4


@tool(needs_approval=True)
async def pay(amount: int) -> str:
    """Pay an amount."""
    raise AssertionError("the processes pay")


def race(place: Place, folder: Path) -> list[str]:
    """Let all run at once, when all have loaded; return what each came to."""
    with ExitStack() as stack:
        racers = [
            stack.enter_context(started("racer.py", place.target or "", "s", str(folder))) for _ in range(PROCESSES)
        ]
        for racer in racers:
            assert racer.stdout is not None
            assert racer.stdout.readline() == "ready\n", racer.communicate()
        for racer in racers:
            assert racer.stdin is not None
            racer.stdin.write("go\n")
            racer.stdin.flush()
        return [racer.communicate(timeout=SECONDS)[0].strip() for racer in racers]


@pytest.mark.slow
async def test_of_several_processes_one_runs_the_state(shared: Place, tmp_path: Path) -> None:
    """One model is asked; the others are refused."""
    async with shared.open() as store:
        await store.save(State(id="s", messages=[Message.user("Hello")]))

    ends = race(shared, tmp_path)

    assert sorted(ends) == ["All is done.", *["refused"] * (PROCESSES - 1)]
    assert (tmp_path / "done").read_text().splitlines() == ["asked"]
    async with shared.open() as store:
        assert kinds(await store.load("s")).count("run_started") == 1


@pytest.mark.slow
async def test_of_several_processes_one_makes_an_approved_call(shared: Place, tmp_path: Path) -> None:
    """Two "continue" requests of one State that waited: the payment is made once."""
    async with shared.open() as store:
        state = State(id="s", messages=[Message.user("Pay")])
        await Agent(FakeModel([tool_call("pay", amount=5)]), tools=[pay], store=store).run(state)
        await store.approve("s", state.pending_calls[0].id, by="Ada")

    ends = race(shared, tmp_path)

    assert sorted(ends) == ["All is done.", *["refused"] * (PROCESSES - 1)]
    assert (tmp_path / "done").read_text().splitlines() == ["paid 5", "asked"]
    async with shared.open() as store:
        assert complaints((await store.load("s")).messages) == []
