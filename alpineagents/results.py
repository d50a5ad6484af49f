"""
Results that are too long for a context: the model reads their ends, and the whole is kept aside in the store.
"""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import sha256

from alpineagents.messages import Image, TextBlock
from alpineagents.state import State
from alpineagents.stores.base import Store
from alpineagents.tools import Tool

Content = tuple[TextBlock | Image, ...]


class Limited:
    """
    The content of a result as the model reads it.

    Attributes:
        content: as it was, or with its texts made one that has their ends only.
        whole: what is to be kept aside; None where nothing was left out.
    """

    def __init__(self, content: Content, limit: int | None, *, kept: bool, readable: bool) -> None:
        self.content, self.whole = content, None
        texts = [block.text for block in content if isinstance(block, TextBlock)]
        size = sum(len(_bytes(text)) for text in texts)
        if limit is None or size <= limit:
            return
        whole = _bytes("\n".join(texts))
        self.whole = whole if kept else None
        head = whole[: boundary(whole, limit * 2 // 3)]
        tail = whole[boundary(whole, len(whole) - limit + limit * 2 // 3) :]
        name = sha256(whole).hexdigest()
        more = "Ask for less of it"
        if kept and readable:
            more = f"To read on: read_result(result={name!r}, start={len(head)})"
        elif kept:
            more = f"The whole is kept as {name}"
        note = f"\n[… {len(whole) - len(head) - len(tail):,} of {len(whole):,} bytes left out. {more} …]\n"
        images = tuple(block for block in content if isinstance(block, Image))
        self.content = (*images, TextBlock(text=text_of(head) + note + text_of(tail)))


async def keep(store: Store | None, state: State, whole: bytes | None) -> None:
    """Keep the whole of a result aside, before the model hears of it."""
    if store is not None and whole is not None:
        await store.write_blob(state.id, whole)


def can_keep(store: Store | None) -> bool:
    """Tell whether the store keeps blobs."""
    return store is not None and type(store).write_blob is not Store.write_blob


def is_readable(tools: Sequence[Tool]) -> bool:
    """Tell whether the model has the tool to read on, `read_result`; also a copy of it with other settings."""
    return any(each.name == "read_result" for each in tools)


def _bytes(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")


def text_of(part: bytes) -> str:
    return part.decode("utf-8", "surrogatepass")


def boundary(whole: bytes, at: int) -> int:
    """Return where the character begins that has the byte."""
    while 0 < at < len(whole) and whole[at] & 0xC0 == 0x80:
        at -= 1
    return at
