"""
`alpineagents demo`: an agent is killed inside a tool and goes on in another process; two processes want one State.

All of it is real: processes, SIGKILL, rows. Each claim is checked against what the processes said and what the
database holds.
"""

from __future__ import annotations

import shlex
import signal
import uuid
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import anyio

from alpineagents.cli.demo.child import Child, DemoError
from alpineagents.cli.demo.folder import Folder
from alpineagents.cli.demo.wire import QUESTION, Job, Report
from alpineagents.cli.states import event_lines, open_store, shown_store
from alpineagents.cli.terminal import OUT, fail, utc
from alpineagents.errors import ConfigError
from alpineagents.events import Event, RunStarted, RunStopped, ToolFinished, ToolStarted
from alpineagents.messages import Message
from alpineagents.models import resolve_model
from alpineagents.state import State
from alpineagents.stores import SQLStore
from alpineagents.terminal.text import clean, one_line

SHORT_LEASE = 2.0
"""Seconds for which a dead run keeps its State; short, so that nobody has to wait for long."""

LONG_LEASE = 60.0
PATIENCE_SECONDS = 60.0
PATIENCE_WITH_MODEL_SECONDS = 300.0
PLAIN_WIDTH = 120


def demo(folder: str, target: str, model: str | None) -> int:
    """
    Tell the story.

    Returns:
        The exit code: 0 only if all that was claimed was seen.

    Raises:
        AlpineAgentsError: there is no such folder, database or model.
    """
    if not hasattr(signal, "SIGKILL"):
        raise ConfigError(
            "this demo kills a process with SIGKILL, which this system does not have: run it on Linux or macOS, "
            "or on Windows inside WSL"
        )
    if model is not None:
        resolve_model(model)
    return anyio.run(Demo(folder, target, model).tell)


class Demo:
    """One telling of the story."""

    def __init__(self, folder: str, target: str, model: str | None) -> None:
        self._folder = Folder(folder)
        self._target = str(Path(target).absolute()) if "://" not in target and target != ":memory:" else target
        self._where, self._model = shown_store(target), model
        self._patience = PATIENCE_SECONDS if model is None else PATIENCE_WITH_MODEL_SECONDS
        self._id, self._race_id = (f"demo-{uuid.uuid4().hex[:8]}" for _ in range(2))
        self._untrue = 0
        if self._where == ":memory:":
            raise ConfigError("a database in memory dies with its process: alpineagents demo --store demo.db")

    async def tell(self) -> int:
        """Tell it from the beginning to the end; return the exit code."""
        driver = self._model or "folder-reader, made of rules: no key, no network"
        OUT.out(f"Folder    {clean(str(self._folder.root))}\nDatabase  {self._where}\nModel     {driver}")
        async with open_store(self._target, must_exist=False, migrate=True) as store:
            try:
                dead = await self._die()
                before = await self._look(store, dead)
                await self._go_on(store, dead, before)
                await self._race(store)
            except DemoError as error:
                fail(error)
                return 1
        self._further()
        return 1 if self._untrue else 0

    def _job(self, part: str, state_id: str, lease: float) -> Job:
        return Job.model_validate(
            {
                "part": part,
                "store": self._target,
                "folder": str(self._folder.root),
                "state_id": state_id,
                "model": self._model,
                "lease": lease,
            }
        )

    # -------------------------------------------------------------------------------------------- the parts

    async def _die(self) -> list[Report]:
        """Let an agent work until it is inside a tool, and kill its process; return what it had reported."""
        _title(1, "An agent works in a process of its own")
        async with Child.started(self._job("dies", self._id, SHORT_LEASE), patience=self._patience) as child:
            _line(f'Process {child.pid} is asked: "{QUESTION}" Each line is a row, committed as it happens:')
            held = await self._until_held(child)
            _line(f"The process is inside {held.line} now and stays there. Its other calls have come to their end.")
            _title(2, f"kill -9 {child.pid}")
            code = await child.kill()
            self._claim(
                code == -signal.SIGKILL, f"the process is dead: SIGKILL, exit code {code}. It had no chance to clean up"
            )
        return child.reports

    async def _until_held(self, child: Child) -> Report:
        held: Report | None = None
        open_ids: set[str] = set()
        while held is None or open_ids != {held.call_id}:
            report = await child.next()
            open_ids |= set(report.calls)
            if report.kind == "saved":
                _row(report.line)
                open_ids.discard(report.call_id)
            elif report.kind == "held":
                held = report
            elif report.kind == "refused":
                raise DemoError(f"the agent failed before it was killed: {report.error}: {report.line}")
            elif report.kind == "answered":
                raise DemoError("the model answered before it had read a file, so there was no moment to kill it in")
        return held

    async def _look(self, store: SQLStore, dead: Sequence[Report]) -> State:
        """Show what the database holds of the dead run."""
        _title(3, "What the database holds")
        info, state = await store.info(self._id), await store.load(self._id)
        until = "none" if info.lease_until is None else utc(info.lease_until)
        _line(f"Table agent_states: id {info.id}, status {info.status}, revision {info.revision}, lease until {until}")
        _line(f"Table agent_events: {len(state.history)} rows")
        for text, style in event_lines(list(state.history), _width()):
            _row(text, style)
        calls = state.snapshot().calls
        in_doubt = [call.id for call in state.pending_calls if calls[call.id].starts]
        held = _held(dead)
        reported = sum(report.kind == "saved" for report in dead)
        self._claim(state.revision >= reported, f"all {reported} rows that the process said were saved are there")
        self._claim(
            info.status == "running", "the State still counts as running: nobody could write that the run ended"
        )
        self._claim(
            in_doubt == [held.call_id] and len(state.pending_calls) == 1,
            f"one call was started and has no result: {held.line}",
        )
        return state

    async def _go_on(self, store: SQLStore, dead: Sequence[Report], before: State) -> None:
        """Carry the State on in another process, and compare what that one did with what was done."""
        _title(4, "Another process carries it on")
        async with Child.started(self._job("goes_on", self._id, LONG_LEASE), patience=self._patience) as child:
            _line(f'Process {child.pid} calls agent.resume("{self._id}").')
            last = await self._until_over(child)
            await child.wait()
        if last.kind != "answered":
            raise DemoError(f"the State could not be carried on: {last.error}: {last.line}")
        state = await store.load(self._id)
        self._compare(before, state, _held(dead), [*dead, *child.reports])
        _line("")
        _line("The answer:", "bold")
        for line in clean(last.line).splitlines():
            _line(line, "green")

    async def _until_over(self, child: Child) -> Report:
        while True:
            report = await child.next()
            if report.kind == "saved":
                _row(report.line)
            elif report.kind == "waiting":
                _line(
                    f"Not yet: {report.error}. The dead run owns the State until its lease of {SHORT_LEASE:g} s ends …"
                )
            elif report.kind in ("answered", "refused"):
                return report

    def _compare(self, before: State, after: State, held: Report, reports: Sequence[Report]) -> None:
        entered = [report for report in reports if report.kind == "entered"]
        counts = Counter(report.call_id for report in entered)
        done = [event.call_id for event in before.history if isinstance(event, ToolFinished)]
        again = [report for report in entered if report.call_id == held.call_id]
        self._claim(
            list(after.history)[: before.revision] == list(before.history),
            f"the {before.revision} rows of the dead process are as they were, and {after.revision - before.revision} "
            "were added",
        )
        self._claim(
            all(counts[call_id] == 1 and _starts(after, call_id) == 1 for call_id in done),
            f"none of the {len(done)} calls that had a result was made again",
        )
        self._claim(
            len(again) == 2 and again[0].key == again[1].key != "" and [each.attempt for each in again] == [1, 2],
            f"{held.line} only reads, so it ran again: attempt 2, with the idempotency key it had: {again[-1].key}",
        )
        self._claim(
            after.status == "stopped" and isinstance(after.answer, str) and bool(after.answer.strip()),
            f"the run came to its end: status {after.status}, revision {after.revision}",
        )

    async def _race(self, store: SQLStore) -> None:
        """Let two processes run one State at one instant."""
        _title(5, "Two processes want the same State")
        await store.save(State(id=self._race_id, messages=[Message.user(QUESTION)]))
        job = self._job("races", self._race_id, LONG_LEASE)
        async with (
            Child.started(job, patience=self._patience) as first,
            Child.started(job, patience=self._patience) as second,
        ):
            for child in (first, second):
                await _until(child, "ready")
            _line(f'Processes {first.pid} and {second.pid} both call agent.resume("{self._race_id}"), at one instant.')
            for child in (first, second):
                await child.tell("go")
            outcomes = {child: await _until(child, "asked", "refused", "answered") for child in (first, second)}
            for child, outcome in outcomes.items():
                if outcome.kind == "asked":
                    _line(f"Process {child.pid} has the State and asks its model, which waits here for the other.")
            for child, outcome in outcomes.items():
                if outcome.kind == "refused":
                    _line(f"Process {child.pid} is refused: {outcome.error}: {outcome.line}")
            kinds = sorted(outcome.kind for outcome in outcomes.values())
            self._claim(kinds == ["asked", "refused"], "exactly one of them runs")
            await self._finish_race(store, outcomes)

    async def _finish_race(self, store: SQLStore, outcomes: dict[Child, Report]) -> None:
        for child, outcome in outcomes.items():
            if outcome.kind == "asked":
                await child.tell("answer")
                await _until(child, "answered", "refused")
            else:
                said = {report.kind for report in child.reports}
                self._claim(
                    outcome.error in ("StateBusyError", "StateConflictError")
                    and not said & {"asked", "saved", "entered"},
                    f"the other one got {outcome.error}: it asked no model, called no tool and wrote nothing",
                )
        history = (await store.load(self._race_id)).history
        runs = {event.run_id for event in history if event.run_id}
        started, stopped = (_count(history, kind) for kind in (RunStarted, RunStopped))
        self._claim(
            len(runs) == started == stopped == 1,
            f"the history has {started} run, which came to its end, and no trace of another",
        )

    def _further(self) -> None:
        _title(6, "Look for yourself")
        store = shlex.quote(self._where)
        _line(f"alpineagents list --store {store}")
        _line(f"alpineagents show {self._id} --store {store}")
        if "***" in self._where:
            _line("Write the password in the place of ***.", "dim")
        if self._untrue:
            OUT.out(f"\n{self._untrue} claim(s) did not hold", style="bold red")

    def _claim(self, holds: bool, text: str) -> None:
        """Write a claim, and whether it was seen to hold."""
        if not holds:
            self._untrue += 1
        OUT.out("   yes  " if holds else "   NO   ", style="bold green" if holds else "bold red", end="")
        OUT.out(one_line(text) if holds else f"this was not seen: {one_line(text)}")


async def _until(child: Child, *kinds: str) -> Report:
    while True:
        report = await child.next()
        if report.kind in kinds:
            return report
        if report.kind == "refused":
            raise DemoError(f"process {child.pid} failed: {report.error}: {report.line}")


def _held(reports: Sequence[Report]) -> Report:
    return next(report for report in reports if report.kind == "held")


def _starts(state: State, call_id: str) -> int:
    return sum(isinstance(event, ToolStarted) and event.call_id == call_id for event in state.history)


def _count(history: Sequence[Event], kind: type[Event]) -> int:
    return sum(isinstance(event, kind) for event in history)


def _title(number: int, text: str) -> None:
    OUT.out(f"\n{number}  {text}", style="bold cyan")


def _line(text: str, style: str | None = None) -> None:
    OUT.out("   " + clean(text), style=style)


def _row(text: str, style: str | None = None) -> None:
    text = clean(text)
    _line(text if len(text) <= _width() else text[: _width() - 1] + "…", style)


def _width() -> int:
    return OUT.width - 3 if OUT.is_terminal else PLAIN_WIDTH
