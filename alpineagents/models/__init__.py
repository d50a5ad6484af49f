"""
Models: what answers a request.

Importing this imports no HTTP client; the first Model that is built does. A provider is imported when it is named.
"""

from importlib import import_module
from typing import TYPE_CHECKING

from alpineagents.models.base import Delta, Emit, Fallback, Model, Retry

__all__ = [
    "Anthropic",
    "Delta",
    "Emit",
    "Fallback",
    "FallbackModel",
    "Model",
    "OpenAICompatible",
    "OpenAIResponses",
    "Retry",
    "resolve_model",
]

if TYPE_CHECKING:
    from alpineagents.models.anthropic import Anthropic
    from alpineagents.models.fallback import FallbackModel
    from alpineagents.models.openai import OpenAICompatible
    from alpineagents.models.openai_responses import OpenAIResponses
    from alpineagents.models.resolve import resolve_model
else:
    _WAITING = {
        "Anthropic": "anthropic",
        "FallbackModel": "fallback",
        "OpenAICompatible": "openai",
        "OpenAIResponses": "openai_responses",
        "resolve_model": "resolve",
    }

    # Not for the type checker, which would then take any name for one that is here.
    def __getattr__(name: str) -> object:
        if name not in _WAITING:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        value = globals()[name] = getattr(import_module(f"{__name__}.{_WAITING[name]}"), name)
        return value

    def __dir__() -> list[str]:
        return sorted({*globals(), *__all__})
