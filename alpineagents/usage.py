"""What requests to models took: tokens of each kind, and what they cost."""

from __future__ import annotations

import dataclasses
import math

from pydantic import BaseModel, ConfigDict, Field

from alpineagents.errors import ConfigError


class Usage(BaseModel):
    """
    Tokens and cost of one or more requests; `+` sums them, `-` gives what came since an earlier sum.

    Attributes:
        input_tokens: tokens read, cached ones included.
        output_tokens: tokens written, reasoning included.
        cache_read_tokens: the part of the input that came from the provider's cache.
        cache_write_tokens: the part of the input that was written into that cache.
        cache_write_1h_tokens: the part of those that is kept for an hour, which costs more.
        reasoning_tokens: the part of the output that was thinking.
        requests: how many requests.
        cost_usd: what they cost in US dollars, as far as it is known.
        unpriced_requests: how many of them have no known price, so that `cost_usd` is less than the whole.

    Example:
        >>> (Usage(input_tokens=10, requests=1) + Usage(input_tokens=5, requests=1)).input_tokens
        15
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    input_tokens: int = Field(default=0, ge=0)
    output_tokens: int = Field(default=0, ge=0)
    cache_read_tokens: int = Field(default=0, ge=0)
    cache_write_tokens: int = Field(default=0, ge=0)
    reasoning_tokens: int = Field(default=0, ge=0)
    requests: int = Field(default=0, ge=0)
    cost_usd: float = Field(default=0.0, ge=0, allow_inf_nan=False)
    unpriced_requests: int = Field(default=0, ge=0)
    # Not written where there are none, so that rows of earlier releases keep their bytes.
    cache_write_1h_tokens: int = Field(default=0, ge=0, exclude_if=lambda tokens: not tokens)

    def __add__(self, other: Usage) -> Usage:
        return Usage.model_construct(
            input_tokens=self.input_tokens + other.input_tokens,
            output_tokens=self.output_tokens + other.output_tokens,
            cache_read_tokens=self.cache_read_tokens + other.cache_read_tokens,
            cache_write_tokens=self.cache_write_tokens + other.cache_write_tokens,
            reasoning_tokens=self.reasoning_tokens + other.reasoning_tokens,
            requests=self.requests + other.requests,
            cost_usd=self.cost_usd + other.cost_usd,
            unpriced_requests=self.unpriced_requests + other.unpriced_requests,
            cache_write_1h_tokens=self.cache_write_1h_tokens + other.cache_write_1h_tokens,
        )

    def __sub__(self, earlier: Usage) -> Usage:
        """Return what came since an earlier sum."""
        return Usage.model_construct(
            **{name: getattr(self, name) - getattr(earlier, name) for name in Usage.model_fields}
        )

    @property
    def total_tokens(self) -> int:
        """Tokens read and written."""
        return self.input_tokens + self.output_tokens


@dataclasses.dataclass(frozen=True)
class Price:
    """
    What a model costs, in US dollars per million tokens.

    Args:
        input: of tokens read.
        output: of tokens written, reasoning included.
        cache_read: of tokens read from the provider's cache; None for the price of all input.
        cache_write: of tokens written into it; None for the price of all input.
        cache_write_1h: of those that it keeps for an hour; None for the price of the others. Anthropic takes twice the
            price of input for them.

    Raises:
        ConfigError: one of them is not a price.

    Example:
        >>> Price(input=1.25, output=10.0, cache_read=0.125).cost_usd(Usage(input_tokens=1_000_000, requests=1))
        1.25
    """

    input: float
    output: float
    cache_read: float | None = None
    cache_write: float | None = None
    cache_write_1h: float | None = None

    def __post_init__(self) -> None:
        for field in dataclasses.fields(self):
            value: object = getattr(self, field.name)
            optional = value is None and field.default is None
            if not optional and not (isinstance(value, (int, float)) and 0 <= value < math.inf):
                raise ConfigError(
                    f"{field.name}={value!r} is not a price in US dollars per million tokens: "
                    "Price(input=1.25, output=10.0)"
                )

    def cost_usd(self, usage: Usage) -> float:
        """Return what these tokens cost."""
        cached = usage.cache_read_tokens + usage.cache_write_tokens
        write = self.input if self.cache_write is None else self.cache_write
        for_an_hour = min(usage.cache_write_1h_tokens, usage.cache_write_tokens)
        millionths = (
            max(usage.input_tokens - cached, 0) * self.input
            + usage.cache_read_tokens * (self.input if self.cache_read is None else self.cache_read)
            + (usage.cache_write_tokens - for_an_hour) * write
            + for_an_hour * (write if self.cache_write_1h is None else self.cache_write_1h)
            + usage.output_tokens * self.output
        )
        return millionths / 1_000_000
