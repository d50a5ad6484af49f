"""
Pure: text of a model, a tool or a database as a terminal may show it.

Control codes could move the cursor, rename the window or hide a line; marks that change the direction of writing could
show a call as another one than it is. None of them gets through.
"""

from __future__ import annotations

from alpineagents.usage import Usage

_LINES_AND_DIRECTIONS = (*range(0x2028, 0x202F), *range(0x2066, 0x206A))
_REPLACED = dict.fromkeys((*range(32), *range(127, 160), *_LINES_AND_DIRECTIONS), "\N{REPLACEMENT CHARACTER}")
_CONTROL: dict[int, str | None] = {**_REPLACED, ord("\n"): "\n", ord("\t"): "\t", ord("\r"): None}


def clean(text: str) -> str:
    """
    Return the text without control codes, marks of direction and lone surrogates.

    Example:
        >>> clean("red: \\x1b[31m")
        'red: \ufffd[31m'
    """
    return text.encode("utf-8", "replace").decode().translate(_CONTROL)


def one_line(text: str, width: int = 0) -> str:
    """
    Return the text as one clean line.

    Args:
        width: cut it at so many characters; 0 for all.

    Example:
        >>> one_line("a long\\n  story", 8)
        'a long …'
    """
    # A huge text is cut before it is worked on, since only its beginning is shown.
    line = " ".join(clean(text[: width * 8 + 1000] if width else text).split())
    return line if not width or len(line) <= width else line[: width - 1] + "…"


def usage_text(usage: Usage) -> str:
    """
    Return tokens and cost as people read them.

    Example:
        >>> usage_text(Usage(input_tokens=1200, output_tokens=30, cost_usd=0.0042, requests=1))
        '1,200 tokens in, 30 out, $0.0042'
    """
    least = "at least " if usage.unpriced_requests else ""
    cost = f", {least}${usage.cost_usd:.4f}" if usage.cost_usd else ""
    return f"{usage.input_tokens:,} tokens in, {usage.output_tokens:,} out{cost}"
