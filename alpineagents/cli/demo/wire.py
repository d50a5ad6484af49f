"""What the demo and its processes say to each other: one line of JSON each, in on stdin, out on stdout."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict

QUESTION = "What is this folder about?"


class Job(BaseModel):
    """
    What a process is to do; the first line it reads. Not an argument, since those are seen by everyone.

    Attributes:
        part: `dies`: answer, but stay inside the call of a tool. `goes_on`: carry the State on. `races`: the same, at
            a word, and with a pause in which the other one is seen to be refused.
        model: name of a real model; None for the one made of rules.
    """

    model_config = ConfigDict(frozen=True)

    part: Literal["dies", "goes_on", "races"]
    store: str
    folder: str
    state_id: str
    model: str | None
    lease: float


class Report(BaseModel):
    """
    What a process says.

    Attributes:
        kind: `saved` an Event, `entered` a tool, `held` inside of it, `waiting` for a lease to end, `ready` for the
            race, `asked` the model; or how it ended: `answered`, `refused`.
        line: the same for a person.
        calls: with a reply, the ids of the calls in it.
        call_id: the call that it is about.
        key: the call's idempotency key.
        error: name of the exception's class.
    """

    model_config = ConfigDict(frozen=True)

    kind: Literal["saved", "entered", "held", "waiting", "ready", "asked", "answered", "refused"]
    line: str = ""
    calls: tuple[str, ...] = ()
    call_id: str = ""
    attempt: int = 0
    key: str = ""
    error: str = ""
