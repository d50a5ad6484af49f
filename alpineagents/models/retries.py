"""When a failed attempt is made again, how often, and after how long."""

from __future__ import annotations

import functools
import random

import anyio
import tenacity

from alpineagents.errors import ConfigError
from alpineagents.models.base import Emit, Retry
from alpineagents.models.failures import AttemptError
from alpineagents.models.tally import spent

RETRY_SECONDS = 60.0
FIRST_WAIT_SECONDS = 0.5
LONGEST_WAIT_SECONDS = 8.0


class Retries:
    """
    The rule for one endpoint.

    Args:
        max_retries: how often a failed request is sent again.
        retry_seconds: no attempt begins later than this after the first one began; None for RETRY_SECONDS.

    Raises:
        ConfigError: one of them cannot work.
    """

    def __init__(self, max_retries: int, retry_seconds: float | None) -> None:
        self._attempts = _whole(max_retries) + 1
        self._seconds = _seconds(RETRY_SECONDS if retry_seconds is None else retry_seconds)

    def around(self, emit: Emit | None) -> tenacity.AsyncRetrying:
        """Return what calls a function until it raises no AttemptError that may pass."""
        return tenacity.AsyncRetrying(
            retry=tenacity.retry_if_exception(lambda error: isinstance(error, AttemptError) and error.again),
            stop=tenacity.stop_after_attempt(self._attempts) | tenacity.stop_before_delay(self._seconds),
            wait=_wait,
            before_sleep=functools.partial(_tell, emit),
            sleep=anyio.sleep,
            reraise=True,
        )


def _tell(emit: Emit | None, state: tenacity.RetryCallState) -> None:
    failure = state.outcome.exception() if state.outcome is not None else None
    if emit is not None and isinstance(failure, AttemptError):
        emit(
            Retry(
                attempt=state.attempt_number + 1,
                wait_seconds=state.upcoming_sleep,
                error=str(failure),
                usage=spent(failure.error),
            )
        )


def _wait(state: tenacity.RetryCallState) -> float:
    failure = state.outcome.exception() if state.outcome is not None else None
    if isinstance(failure, AttemptError) and failure.wait is not None:
        # Never sooner than asked, and not all callers at the same instant.
        return failure.wait * random.uniform(1.0, 1.1)
    backoff = tenacity.wait_exponential(multiplier=FIRST_WAIT_SECONDS, max=LONGEST_WAIT_SECONDS)
    return backoff(state) + random.uniform(0.0, FIRST_WAIT_SECONDS)


def _whole(max_retries: object) -> int:
    if isinstance(max_retries, bool) or not isinstance(max_retries, int) or max_retries < 0:
        raise ConfigError(f"max_retries is {max_retries!r}; it is a number from 0 on: max_retries=2")
    return max_retries


def _seconds(retry_seconds: object) -> float:
    if isinstance(retry_seconds, bool) or not isinstance(retry_seconds, (int, float)) or not retry_seconds >= 0:
        raise ConfigError(f"retry_seconds is {retry_seconds!r}; it is a number of seconds: retry_seconds=60.0")
    return float(retry_seconds)
