"""
Models: what answers a request.

Importing this imports no HTTP client; the first Model that is built does.
"""

from alpineagents.models.anthropic import Anthropic
from alpineagents.models.base import Delta, Emit, Fallback, Model, Retry
from alpineagents.models.fallback import FallbackModel
from alpineagents.models.openai import OpenAICompatible
from alpineagents.models.openai_responses import OpenAIResponses
from alpineagents.models.resolve import resolve_model

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
