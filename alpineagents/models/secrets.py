"""What no error may show, found in the words of a server however it has spelled them."""

from __future__ import annotations

import html
import re
from collections.abc import Iterable

from pydantic import SecretStr

SECRET_LENGTH = 8
"""A shorter key is a stand-in such as `x` or `ollama`: it is left out as a word of its own only."""

_SHAPES = re.compile(r"\bsk-[\w.*…-]+|\b(?:Bearer|Basic)\s+[^\s\"',;]+", re.IGNORECASE)


class Secrets:
    """
    Leaves secrets out of texts, and whatever else looks like a key.

    Example:
        >>> Secrets(["hunter2/mine"]).scrub("hunter2%2Fmine is wrong")
        '[key] is wrong'
    """

    def __init__(self, secrets: Iterable[str]) -> None:
        patterns = [_pattern(secret) for secret in sorted(set(secrets), key=len, reverse=True) if secret]
        # Hidden, since the pattern spells the secrets out.
        self._pattern = SecretStr("|".join(patterns))

    def __bool__(self) -> bool:
        return bool(self._pattern.get_secret_value())

    def scrub(self, text: str) -> str:
        """Return a text without secrets."""
        if self:
            text = re.sub(self._pattern.get_secret_value(), "[key]", text)
        return _SHAPES.sub("[key]", text)


def _pattern(secret: str) -> str:
    spelled = "".join(map(_spellings, secret))
    return spelled if len(secret) >= SECRET_LENGTH else rf"(?<![\w-]){spelled}(?![\w-])"


def _spellings(letter: str) -> str:
    """Return a pattern of the ways in which servers write a letter: plain, or escaped for JSON, an address or HTML."""
    encoded = "".join(f"%{byte:02x}" for byte in letter.encode("utf-8", "surrogatepass"))
    forms = [rf"\\?{re.escape(letter)}", f"(?i:{encoded})", rf"(?i:\\u{ord(letter):04x})"]
    forms += [f"&#0*{ord(letter)};", f"(?i:&#x0*{ord(letter):x};)"]
    if (entity := html.escape(letter)) != letter:
        forms.append(re.escape(entity))
    return f"(?:{'|'.join(forms)})"
