"""What requests to models took: tokens of each kind, and what they cost."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, Field


class Usage(BaseModel):
    """
    Tokens and cost of one or more requests; `+` sums them.

    Attributes:
        input_tokens: tokens read, cached ones included.
        output_tokens: tokens written, reasoning included.
        cache_read_tokens: the part of the input that came from the provider's cache.
        cache_write_tokens: the part of the input that was written into that cache.
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
        )

    @property
    def total_tokens(self) -> int:
        """Tokens read and written."""
        return self.input_tokens + self.output_tokens
