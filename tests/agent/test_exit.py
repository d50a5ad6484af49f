"""A process ends when its script does, whatever it left open."""

from __future__ import annotations

import pytest

from tests.agent.parts import Place, kinds
from tests.agent.processes import run

PROMPT_SECONDS = 12.0


@pytest.mark.parametrize(
    "how, said",
    [("asyncio", ["Hi"]), ("sync", ["Hi"]), ("both", ["Hi", "Hi", "Hi Hi"]), ("stream", ["Hi"])],
)
def test_a_process_with_an_unclosed_store_ends(how: str, said: list[str], shared: Place) -> None:
    """Used through `asyncio.run`, through the `_sync` calls, or both: no thread of a driver holds it up."""
    ended = run("leaving.py", shared.target or "", how, seconds=PROMPT_SECONDS)

    assert (ended.returncode, ended.stdout.splitlines()) == (0, said), ended.stderr


@pytest.mark.parametrize("door", ["asyncio", "sync"])
@pytest.mark.parametrize("where", ["in a thread", "in the loop"])
async def test_a_tool_that_leaves_the_program_ends_it(where: str, door: str, shared: Place) -> None:
    """What `sys.exit` raises in a tool goes up, also through `run_sync`, and the run is recorded."""
    ended = run("leaving.py", shared.target or "", f"{door} exit {where}", seconds=PROMPT_SECONDS)

    assert ended.returncode == 3, ended.stderr
    async with shared.open() as store:
        state = await store.load("left")
    assert kinds(state)[-1] == "run_stopped"


def test_run_sync_works_after_a_run_that_left_the_program(shared: Place) -> None:
    """A script that catches what `sys.exit` raises goes on, with the next call too."""
    ended = run("leaving.py", shared.target or "", "exit of a model", seconds=PROMPT_SECONDS)

    assert (ended.returncode, ended.stdout.splitlines()) == (0, ["3 Hi"]), ended.stderr
