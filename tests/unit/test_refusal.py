"""Why an append did not fit, as every store says it."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from alpineagents import StateBusyError, StateHeader, StateKey
from alpineagents.stores import Lease
from alpineagents.stores.header import Found, settle_refusal

AT = datetime(2026, 1, 1, tzinfo=UTC)


def test_a_lease_that_ended_between_refusal_and_look_is_no_conflict() -> None:
    """Nothing has moved: whoever claims the State can try again, and need not load it."""
    header = StateHeader("running", AT, "", None, follows=AT, lease=Lease("mine", 60.0))
    found = Found(revision=3, at=AT, owner=None, landed=None)

    with pytest.raises(StateBusyError):
        settle_refusal(StateKey("", "s"), 3, header, found)
