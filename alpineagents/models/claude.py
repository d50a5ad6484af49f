"""
What is known of Claude's models: how much they read and write, and what they take.

From Anthropic's pages on models, "Prefill not supported" and "Preserved thinking" (2026-11). A model that is not known
is taken for one of its line, and a name of no line for a small one behind another server.
"""

from __future__ import annotations

import dataclasses
import re


@dataclasses.dataclass(frozen=True)
class Facts:
    """
    What a model can do.

    Attributes:
        context_tokens: how much it reads and writes in all.
        max_tokens: how much it writes at most in one reply.
        takes_prefill: whether a conversation may end with the model's own words, which it goes on from.
        binds_thinking: whether its thinking is refused behind a changed conversation.
        takes_shape: whether the API holds its answers to a JSON Schema.
    """

    context_tokens: int = 200_000
    max_tokens: int = 8_192
    takes_prefill: bool = True
    binds_thinking: bool = False
    takes_shape: bool = False


# By version, the highest first: (from, tokens of context, tokens of output, those of lines that write less).
_SIZES: tuple[tuple[tuple[int, int], int, int, dict[str, int]], ...] = (
    ((4, 6), 1_000_000, 128_000, {"haiku": 64_000}),
    ((4, 2), 200_000, 64_000, {}),
    ((4, 0), 200_000, 64_000, {"opus": 32_000}),
    ((3, 7), 200_000, 64_000, {}),
    ((3, 5), 200_000, 8_192, {}),
)
_SMALLEST = Facts(max_tokens=4_096)

# claude-sonnet-5-5, claude-haiku-4-5-20251001, claude-3-5-haiku-latest, also behind a prefix such as `anthropic/`.
_NAME = re.compile(r"(?:^|[/.])claude-(?:([a-z]+)-)?(\d{1,2})(?:[-.](\d{1,2}))?(?![\d.])(?:-([a-z]+))?")


def facts_of(model: str) -> Facts:
    """
    Return what is known of a model.

    Example:
        >>> facts_of("claude-haiku-4-5-20251001").max_tokens
        64000
        >>> facts_of("qwen3-8b").max_tokens
        8192
    """
    found = _NAME.search(model)
    if found is None:
        return Facts()
    line = found[1] or found[4]
    version = (int(found[2]), int(found[3] or 0))
    for since, context_tokens, max_tokens, less in _SIZES:
        if version >= since:
            return Facts(
                context_tokens=context_tokens,
                max_tokens=less.get(line, max_tokens),
                takes_prefill=version < (4, 6),
                binds_thinking=version >= (5, 1),
                takes_shape=version >= (4, 5),
            )
    return _SMALLEST
