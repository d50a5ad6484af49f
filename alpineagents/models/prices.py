"""
What a reply cost: by the price that the caller gave, by the provider's own word, or by the catalogue `genai-prices`.

The catalogue comes with the extra `alpineagents[prices]`. It is asked by the address of the API, so that a model of the
same name on another server, which may cost something else, has no price.
"""

from __future__ import annotations

import importlib.util

from alpineagents.errors import ConfigError
from alpineagents.models.reading import ReplyReader
from alpineagents.usage import Price, Usage


class Pricing:
    """
    Knows what replies of one endpoint cost.

    Args:
        price: what the caller says.
        base_url: of the API.

    Raises:
        ConfigError: the price is none.
    """

    def __init__(self, price: Price | None, base_url: str) -> None:
        given: object = price
        if given is not None and not isinstance(given, Price):
            raise ConfigError(f"price is {price!r:.80}; it is a Price: price=Price(input=1.25, output=10.0)")
        self._price = price
        self._base_url = base_url
        self._has_catalogue = price is None and importlib.util.find_spec("genai_prices") is not None
        if self._has_catalogue:
            # Now, since it takes a tenth of a second, in which no event loop should stand still.
            import genai_prices  # noqa: F401  # to have it loaded

    def of_part(self, reader: ReplyReader, *models: str) -> Usage | None:
        """
        Return what a request took whose reply broke off, as far as it is known, with the cost of that.

        Unless the server said that this is all, the request still counts as unpriced, since it cost more than that.
        """
        if reader.usage is None:
            return None
        usage = self.of(reader.usage, *models)
        return usage if reader.counted else usage.model_copy(update={"unpriced_requests": usage.requests})

    def of(self, usage: Usage, *models: str) -> Usage:
        """
        Return the usage of one reply with its cost, as far as that is known.

        Args:
            models: names of the model, the most exact one first.
        """
        if not usage.total_tokens:
            return usage  # The server did not count, so the cost is unknown whatever the price.
        cost = self._price.cost_usd(usage) if self._price is not None else None
        if cost is None and usage.unpriced_requests:
            cost = next((found for model in models if (found := self._look_up(usage, model)) is not None), None)
        return usage if cost is None else usage.model_copy(update={"cost_usd": cost, "unpriced_requests": 0})

    def _look_up(self, usage: Usage, model: str) -> float | None:
        if not self._has_catalogue:
            return None
        import genai_prices

        # The catalogue has one price of writing; what is kept for an hour costs twice the input.
        for_an_hour = usage.cache_write_1h_tokens
        counted = [
            genai_prices.Usage(
                input_tokens=usage.input_tokens,
                output_tokens=usage.output_tokens,
                cache_read_tokens=usage.cache_read_tokens,
                cache_write_tokens=usage.cache_write_tokens - for_an_hour,
            ),
            *([genai_prices.Usage(input_tokens=for_an_hour)] if for_an_hour else []),
        ]
        try:
            prices = [genai_prices.calc_price(part, model, provider_api_url=self._base_url) for part in counted]
            return float(sum(price.total_price for price in prices))
        except (LookupError, ValueError):
            return None  # It does not know the API or the model, or has no price for this kind of token.
