"""Several models, each for when the ones before it are down."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import AsyncExitStack

from alpineagents.errors import ConfigError, ModelError, ProviderError, RateLimitError, said
from alpineagents.messages import FailedModel, Reply, Request
from alpineagents.models.base import Emit, Fallback, Model, Pooled, window_of
from alpineagents.models.resolve import resolve_model
from alpineagents.models.tally import Tally, spent
from alpineagents.usage import Usage

_PASSING_STATUSES = (408, 409, 425)


class FallbackModel:
    """
    Asks the first model, and the next one when it fails for a reason that may pass.

    Such a reason is a rate limit, a server error, an unreachable server or a broken stream, once the model's own
    retries are used up. A wrong key, a context that is too long and a request that is refused are raised: they are for
    the caller to mend, and another model would hide them. Nor is another model asked after a part of the reply was
    shown.

    Args:
        models: Models or names of models, the first choice first.

    Raises:
        ConfigError: there is none, or something else than a Model.

    Example:
        >>> from alpineagents import Agent, ProviderError
        >>> from alpineagents.testing import FakeModel
        >>> down, up = FakeModel([ProviderError("overloaded")], name="down"), FakeModel(["Good day."], name="up")
        >>> Agent(FallbackModel([down, up])).run_sync("Hello")
        'Good day.'
    """

    def __init__(self, models: Iterable[Model | str]) -> None:
        given: object = models
        if isinstance(given, (str, bytes)) or not isinstance(given, Iterable):
            raise ConfigError('FallbackModel takes a list: FallbackModel(["gpt-5", "claude-sonnet-5-5"])')
        self._models = tuple(resolve_model(model) if isinstance(model, str) else model for model in models)
        for model in self._models:
            if not isinstance(model, Model):
                raise ConfigError(f'{model!r:.80} is not a model: FallbackModel(["gpt-5", "claude-sonnet-5-5"])')
        if not self._models:
            raise ConfigError('FallbackModel has no model: FallbackModel(["gpt-5", "claude-sonnet-5-5"])')
        pooled = [model for model in self._models if isinstance(model, Pooled)]
        for model in pooled[1:]:
            model.share_connections(pooled[0])

    def __repr__(self) -> str:
        return f"FallbackModel([{', '.join(map(repr, self._models))}])"

    @property
    def name(self) -> str:
        """The names of the models, as history and lists show them."""
        return " | ".join(model.name for model in self._models)

    @property
    def context_tokens(self) -> int | None:
        """How many tokens the smallest of their windows holds; None unless all of them say so."""
        windows = [window_of(model) for model in self._models]
        known = [window for window in windows if window is not None]
        return min(known) if len(known) == len(windows) else None

    async def respond(self, request: Request, *, emit: Emit | None = None) -> Reply:
        """
        Answer a request; `Reply.by` names the Model that did, and `Reply.failures` those before it.

        Args:
            emit: called with each part of the reply, and with a `Fallback` when the next model is asked.

        Raises:
            ModelError: the last model failed, or one for a reason that will not pass.
        """
        tally = Tally(emit)
        for model, after in zip(self._models, (*self._models[1:], None), strict=True):
            # What is in the tally by now is of the models before; this one counts its own attempts in its reply.
            before = tally.usage
            try:
                reply = await model.respond(request, emit=tally)
            except ModelError as error:
                if after is None or tally.started or not _may_pass(error):
                    for earlier in tally.failures:
                        error.add_note(f"before it, {earlier.name!r} failed: {earlier.message}")
                    raise
                failed = FailedModel(name=model.name, error=type(error).__name__, message=said(error))
                tally(Fallback(model=after.name, error=str(error), usage=spent(error), failed=failed))
            else:
                return _named(reply, model, before, tally.failures)
        raise AssertionError("the last model returns or raises")

    async def aclose(self) -> None:
        """Close all of them, also where one fails to close."""
        async with AsyncExitStack() as closing:
            for model in self._models:
                closing.push_async_callback(model.aclose)


def _may_pass(error: ModelError) -> bool:
    if isinstance(error, RateLimitError):
        return True
    passing = error.status is None or error.status >= 500 or error.status in _PASSING_STATUSES
    return isinstance(error, ProviderError) and passing


def _named(reply: Reply, model: Model, before: Usage, failures: tuple[FailedModel, ...]) -> Reply:
    # One that is a FallbackModel itself has said who replied, and handed on who failed.
    return reply.model_copy(
        update={
            "model": reply.model or model.name,
            "by": reply.by or model.name,
            "failures": failures,
            "usage": before + reply.usage,
        }
    )
