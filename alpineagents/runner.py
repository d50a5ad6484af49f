"""
One run's life: claim the State, repair what a dead run left open, hold the State while the loop works, close.

Every way out is recorded: the loop's own end, an exception, a cancellation, a request to cancel. Only a run that has
lost its State to another records nothing more.
"""

from __future__ import annotations

import logging
import sys
import threading
import warnings
import weakref
from collections.abc import Awaitable, Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import anyio
import anyio.from_thread
import anyio.lowlevel

from alpineagents import clock
from alpineagents.errors import (
    AlpineAgentsError,
    ResumeWarning,
    StateBusyError,
    StateConflictError,
    StateNotFoundError,
    said,
)
from alpineagents.events import ApprovalDecided, Event, RunStarted, RunStopped
from alpineagents.journal import Journal
from alpineagents.loop import Loop
from alpineagents.messages import Message
from alpineagents.models.base import Emitted
from alpineagents.repair import Step, closing, repairs
from alpineagents.shield import settled
from alpineagents.state import State
from alpineagents.stopped import (
    Stopped,
    StoppedByCancel,
    StoppedByError,
    StoppedByFinish,
    StoppedByLimit,
    StoppedByPermission,
    StoppedByUntil,
    WaitingForApproval,
)
from alpineagents.tools import Progress

if TYPE_CHECKING:
    from alpineagents.agent import Agent

log = logging.getLogger("alpineagents")

Item = Event | Emitted | Progress
"""What a reader of a run sees: each Event once it is saved, what a Model tells while it replies, how far calls are."""

Emit = Callable[[Item], None]

BEATS_PER_LEASE = 4
"""How often a lease is renewed while it lasts: a beat or two may fail before another run can take the State."""


_runs: weakref.WeakKeyDictionary[State, Run] = weakref.WeakKeyDictionary()


def current(state: State) -> Run | None:
    """Return the run that goes on with this very object, if there is one."""
    return _runs.get(state)


@dataclass(slots=True)
class Turns:
    """How many turns a loop has taken."""

    taken: int = 0


class Run:
    """
    A run that goes on; `agent.think` and `agent.use_tools` write through its journal.

    Args:
        emit: called with each item; it returns at once.
        shown: waits, within bounds, until whoever gets the items has had those emitted so far.
    """

    def __init__(self, agent: Agent[Any], state: State, emit: Emit, shown: Callable[[], Awaitable[None]]) -> None:
        self.id = clock.new_id()
        self.agent, self.state, self.emit, self.shown = agent, state, emit, shown
        self.journal = Journal(state, agent.store, run_id=self.id, lease=agent.lease, saved=self._saved)
        self._scope = anyio.CancelScope()
        self._beating = anyio.CancelScope()
        self._lost: StateConflictError | StateNotFoundError | None = None
        self.turns, self.looping = Turns(), False
        # A rule or a person has ended the run; it stops after its turn.
        self.stopped: Stopped | None = None
        # The call that the person at hand is being asked about; cancelling the scope takes the question back.
        self.asking: tuple[str, anyio.CancelScope] | None = None
        self.leaves_waiting = False

    async def execute(self, body: Callable[[Run], Awaitable[Stopped]], *, again: bool = False) -> None:
        """
        Claim the State, await the body, record how it ended.

        Args:
            again: await the body once more where a message came in since it ended, so that none is left unanswered.

        Raises:
            StateBusyError: another run owns the State, in this process or in another.
            StateConflictError: another run took the State meanwhile.
            Exception: whatever the body raised.
        """
        if (other := current(self.state)) is not None:
            raise StateBusyError(self.state.id, other.id)
        self._warn_of_another_agent()
        _runs[self.state] = self
        self.state.run_id = self.id
        failure: BaseException | None = None
        try:
            await self._claim()
            async with anyio.create_task_group() as group:
                group.start_soon(self._beat)
                with self._scope:
                    failure = await self._body(body, again)
                # Not the group's own scope: it holds this task too, and Python before 3.13 can take that for a
                # cancellation from outside.
                self._beating.cancel()
        finally:
            del _runs[self.state]
            self.state.run_id = None
        if failure := failure or self._lost:
            raise failure

    def reporter(self) -> Callable[[Progress], None]:
        """Return what emits the progress of a tool, whatever thread it runs in; behind the end of the run nothing."""
        token, home = anyio.lowlevel.current_token(), threading.get_ident()

        def emit(item: Progress) -> None:
            if current(self.state) is self:
                self.emit(item)

        def report(item: Progress) -> None:
            if threading.get_ident() == home:
                emit(item)
                return
            with suppress(anyio.RunFinishedError):
                anyio.from_thread.run_sync(emit, item, token=token)

        return report

    def late(self, text: str) -> None:
        """Tell the model what came of a call that nobody waited for any more; behind the end of the run nothing."""
        if current(self.state) is self:
            self.state.add_message(Message.notice(text))

    def _warn_of_another_agent(self) -> None:
        before, now = self.state.saved_by, self.agent.describe()
        if before is not None and before != now:
            pairs = {name: (getattr(before, name), getattr(now, name)) for name in type(now).model_fields}
            changes = {name: pair for name, pair in pairs.items() if pair[0] != pair[1]}
            warnings.warn(ResumeWarning(self.state.id, changes), stacklevel=_outside())
        self.state.saved_by = None

    async def _claim(self) -> None:
        value = self.state.snapshot()
        about = self.agent.describe()
        try:
            self.journal.add(RunStarted, agent=None if value.agent == about else about)
            forked = self.state.parent_id is not None
            await self.journal.record_all(repairs(value, self.agent.tools, self.agent.on_unknown, forked=forked))
        except BaseException:
            self.state.drop_unsaved(self.id)
            if self.state.snapshot().run_id == self.id:
                # The append was settled before the cancellation went on: the State is this run's, so it gives it up.
                await settled(self._close_cancelled)
            raise

    async def _body(self, body: Callable[[Run], Awaitable[Stopped]], again: bool) -> BaseException | None:
        # What the body raises is handed over instead of raised, since a task group would wrap it.
        try:
            while True:
                stopped = await body(self)
                give_way = again and isinstance(stopped, (StoppedByUntil, StoppedByFinish))
                if await settled(partial(self.journal.end, stopped, give_way=give_way)):
                    return None
        except anyio.get_cancelled_exc_class():
            await settled(self._close_cancelled)
            raise
        except BaseException as error:  # noqa: BLE001  # every way out is recorded
            name = type(error).__name__
            if isinstance(error, (KeyboardInterrupt, SystemExit)):
                await settled(self._close_cancelled)
            else:
                failed = StoppedByError(error=name, message=said(error))
                await settled(lambda: self._close(failed, f"the run failed with {name}"))
            return error

    async def _close_cancelled(self) -> None:
        by = self.state.snapshot().cancelled_by
        reason = "the run was cancelled" if by is None else f"{by or 'someone'} asked the run to stop"
        await self._close(StoppedByCancel(by=by or ""), reason)

    async def _close(self, stopped: Stopped, reason: str) -> None:
        if self._lost is not None or self.journal.lost is not None or self.state.snapshot().run_id != self.id:
            return
        steps: Iterable[Step] = closing(self.state.snapshot(), stopped, reason)
        if self.leaves_waiting and (waiting := waiting_for_approval(self.state)):
            # Ended while a person was asked, with no tool under way: the question stays, for whoever goes on.
            steps = [(RunStopped, {"stopped": waiting})]
        try:
            await self.journal.record_all(steps)
        except AlpineAgentsError as error:
            # The caller must see what ended the run, not this; the State keeps what is not saved.
            log.warning("the end of run %s of State %s could not be saved: %s", self.id, self.state.id, error)

    async def _beat(self) -> None:
        if self.agent.store is None:
            return
        with self._beating:
            await self._keep_beating()

    async def _keep_beating(self) -> None:
        while True:
            await anyio.sleep(self.agent.lease / BEATS_PER_LEASE)
            try:
                await self.journal.renew()
            except (StateConflictError, StateNotFoundError) as error:
                self._lost = error
                self._scope.cancel()
                return
            except AlpineAgentsError as error:
                # The next append settles whether the State is still this run's; until then the work goes on.
                log.warning("the lease of run %s of State %s could not be renewed: %s", self.id, self.state.id, error)
            self._obey_cancel_request()

    def _obey_cancel_request(self) -> None:
        if self.state.snapshot().cancelled_by is not None:
            self._scope.cancel()

    def _saved(self, event: Event) -> None:
        self.emit(event)
        if event.kind == "cancel_requested":
            self._obey_cancel_request()
        if isinstance(event, ApprovalDecided) and self.asking is not None and self.asking[0] == event.call_id:
            self.asking[1].cancel()


def _outside() -> int:
    """Return the level, for the caller, of the first frame that is not the library's: the line that a warning names."""
    package = __name__.partition(".")[0]
    frame, level = sys._getframe(1), 1
    while frame.f_back is not None and frame.f_globals.get("__name__", "").partition(".")[0] == package:
        frame, level = frame.f_back, level + 1
    return level


class MustStopError(BaseException):
    """
    Ends the turns of all loops around the one that met it: a rule has ended the run, or a person has to decide first.

    It is no Exception, so that what a loop of the user's catches does not hold it up.
    """

    def __init__(self, stopped: Stopped) -> None:
        self.stopped = stopped
        super().__init__(str(stopped))


async def repeat(loop: Loop, run: Run, agent: Agent[Any] | None = None) -> Stopped:
    """
    Repeat the loop's turn until it is to stop.

    A turn that a dead run left open is finished first: its calls are made before the model is asked again.

    Args:
        agent: who takes the turns; None for the one that runs.
    """
    agent = agent or run.agent
    if run.looping:
        stopped = await _take_turns(loop, agent, run, Turns())
        if isinstance(stopped, (WaitingForApproval, StoppedByPermission)):
            raise MustStopError(stopped)
        return stopped
    run.looping = True
    try:
        return await _take_turns(loop, agent, run, run.turns)
    except MustStopError as must:
        return must.stopped
    finally:
        run.looping = False


async def _take_turns(loop: Loop, agent: Agent[Any], run: Run, turns: Turns) -> Stopped:
    state = run.state
    if state.pending_calls:
        await agent.use_tools(state)
    while True:
        if stopped := run.stopped or await _stopped(loop, state):
            return stopped
        if turns.taken == loop.limit:
            return StoppedByLimit(turns=loop.limit)
        turns.taken += 1
        await loop.turn(agent, state)


def waiting_for_approval(state: State) -> WaitingForApproval | None:
    """Return that the State waits for a person, if it does."""
    waiting = tuple(call.call.id for call in state.snapshot().calls.values() if call.waits)
    return WaitingForApproval(call_ids=waiting) if waiting else None


async def _stopped(loop: Loop, state: State) -> Stopped | None:
    value = state.snapshot()
    if waiting := waiting_for_approval(state):
        return waiting
    if value.finished:
        return StoppedByFinish(answer=value.answer)
    if name := await loop.held(state):
        return StoppedByUntil(name=name)
    return None
