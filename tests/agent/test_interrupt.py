"""Ctrl+C in real processes: the run ends clean and at once, and a second one leaves whatever goes on."""

from __future__ import annotations

import os
import signal
import subprocess

import pytest

from alpineagents import State, StoppedByCancel
from tests.agent.parts import Place, check_closed, outcomes
from tests.agent.processes import started

PROMPT_SECONDS = 10.0
"""What blocks would take two minutes."""


def interrupt(process: subprocess.Popen[str]) -> None:
    """Press Ctrl+C once it blocks."""
    assert process.stdout is not None
    assert process.stdout.readline() == "blocked\n", process.communicate()
    os.kill(process.pid, signal.SIGINT)


async def look(place: Place) -> State:
    async with place.open() as store:
        state = await store.load("s")
        await check_closed(store, state)
    return state


@pytest.mark.parametrize("door", ["asyncio", "sync"])
@pytest.mark.parametrize("blocks", ["sync tool", "async tool", "model"])
async def test_ctrl_c_ends_the_run_and_the_process(blocks: str, door: str, shared: Place) -> None:
    """The history says that the run was cancelled, its calls are closed, and the process does not wait for the tool."""
    with started("interrupted.py", shared.target or "", "s", door, blocks) as process:
        interrupt(process)
        _, errors = process.communicate(timeout=PROMPT_SECONDS)

    assert process.returncode == -signal.SIGINT, errors
    assert "KeyboardInterrupt" in errors
    state = await look(shared)
    assert (state.stopped, state.status) == (StoppedByCancel(), "cancelled")
    assert outcomes(state) == ({} if blocks == "model" else {"wait": "interrupted"})


@pytest.mark.parametrize("door", ["asyncio", "sync"])
async def test_a_second_ctrl_c_leaves(door: str, shared: Place) -> None:
    """Where a tool takes no notice of the first; what was acknowledged is there, and another process can go on."""
    with started("interrupted.py", shared.target or "", "s", door, "stubborn tool") as process:
        interrupt(process)
        # The first one has no visible effect, by its nature; it is given time to be handled as one of its own.
        with pytest.raises(subprocess.TimeoutExpired):
            process.wait(timeout=1.0)
        os.kill(process.pid, signal.SIGINT)
        process.communicate(timeout=PROMPT_SECONDS)

    assert process.returncode != 0
    async with shared.open() as store:
        state = await store.load("s")
    assert [event.kind for event in state.history[:4]] == [
        *["message_added", "run_started", "model_requested", "model_replied"],
    ]
