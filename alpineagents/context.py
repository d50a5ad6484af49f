"""
The context of a State: how much of a model's window it takes, and what of it a summary can stand for. Pure.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence

from alpineagents.errors import ConfigError
from alpineagents.events import ContextChanged, Event, ModelReplied
from alpineagents.messages import Image, Message, Request, TextBlock, ToolCall, ToolResultBlock, ToolSpec

BYTES_PER_TOKEN = 4
IMAGE_TOKENS = 1_500
MESSAGE_TOKENS = 4
"""What a block takes as a rule; only the provider knows it."""

UNKNOWN_WINDOW_TOKENS = 100_000
"""What a request for a summary may take, where the model's window is not known."""

SMALLEST_CHARACTERS = 50
"""A summary of less of a conversation says nothing of it."""

SYSTEM = "You write summaries of conversations between a user, an assistant and its tools."

QUESTION = """\
The conversation below has become too long. Write what will stand in its place: the assistant goes on from your \
summary alone and sees nothing else of it.

Keep what the user wants and in which words, what was decided and why, what was found out (names, numbers, paths, \
ids), what was done with which outcome, and what is left to do. Leave out what no longer matters. Write the summary \
only.
"""

PREFACE = "What was said so far, as a summary:\n\n"


def tokens_of(messages: Iterable[Message], system: str | None = None, tools: Iterable[ToolSpec] = ()) -> int:
    """
    Estimate what messages take.

    Example:
        >>> tokens_of([Message.user("Which peaks are over 4,000 m?")])
        12
    """
    texts = [system or "", *(tool.model_dump_json(ensure_ascii=True) for tool in tools)]
    images = count = 0
    for message in messages:
        count += 1
        for block in message.content:
            parts = block.content if isinstance(block, ToolResultBlock) else (block,)
            images += sum(isinstance(part, Image) for part in parts)
            texts += [_text(part) for part in parts if not isinstance(part, Image)]
    size_bytes = sum(len(text.encode("utf-8", "surrogatepass")) for text in texts)
    return -(-size_bytes // BYTES_PER_TOKEN) + images * IMAGE_TOKENS + count * MESSAGE_TOKENS


def measured(history: Sequence[Event], messages: Sequence[Message]) -> tuple[int, int]:
    """
    Return what the provider counted of the context, and how many of its messages that was; (0, 0) if it did not.
    """
    for event in reversed(history):
        if isinstance(event, ContextChanged):
            break
        if isinstance(event, ModelReplied):
            tokens = event.usage.input_tokens + event.usage.output_tokens if event.usage.input_tokens else 0
            place = next((at for at in range(len(messages), 0, -1) if messages[at - 1] is event.message), 0)
            return (tokens, place) if tokens and place else (0, 0)
    return 0, 0


def split(messages: Sequence[Message], keep: int) -> tuple[Sequence[Message], Sequence[Message]]:
    """
    Return the messages that a summary is to stand for, and the last ones, which stay as they are.

    At least `keep` messages stay; no call is parted from its result, and what waits for an answer stays in any case.

    Raises:
        ConfigError: `keep` is not a number of messages.

    Example:
        >>> head, tail = split([Message.user("a"), Message(role="assistant", content="b"), Message.user("c")], 0)
        >>> [message.text for message in tail]
        ['c']
    """
    if type(keep) is not int or keep < 0:
        raise ConfigError(f"keep={keep!r} is not a number of messages: await agent.compact(state, keep=4)")
    place = max(len(messages) - keep, 0)
    while place and messages[place - 1].is_plain and all(message.is_plain for message in messages[place:]):
        place -= 1
    while 0 < place < len(messages) and messages[place].tool_results:
        place -= 1
    return messages[:place], messages[place:]


def unanswered(head: Sequence[Message]) -> tuple[Message, ...]:
    """
    Return what a person said last in messages that a summary will stand for, if no answer to it is among them.

    Example:
        >>> [message.text for message in unanswered([Message.user("Why?"), Message.notice("It is noon.")])]
        ['Why?']
    """
    for message in reversed(head):
        if message.is_plain and not message.is_notice:
            return (message,)
        if message.role == "assistant" and not message.tool_calls:
            break
    return ()


def worth_a_summary(head: Sequence[Message]) -> bool:
    """Tell whether a summary can be shorter than these messages: it cannot be if they are one already, or none."""
    return len(head) > 1 or (len(head) == 1 and not head[0].text.startswith(PREFACE))


def summary_request(head: Sequence[Message], instructions: str | None, max_characters: int) -> Request:
    """
    Return the request for a summary.

    The conversation is handed over as one text, so that no model takes it for its own and goes on with it.

    Args:
        max_characters: of the conversation; what is longer is left out of the longest parts first, and of the middle.
    """
    parts = [part for message in head for part in transcript(message)]
    longest = max(max_characters // 20, 200)
    whole = cut(
        "\n\n".join(cut(part, longest) if sum(map(len, parts)) > max_characters else part for part in parts),
        max_characters,
    )
    wishes = f"\n{instructions}\n" if instructions else ""
    # A quarter of what may be sent, at some six characters a word: in a small window it must leave room.
    words = max_characters // 24
    limit = f"Use at most {words} words.\n" if words < 1_000 else ""
    text = f"{QUESTION}{limit}{wishes}\n<conversation>\n{whole}\n</conversation>"
    return Request.model_construct(system=SYSTEM, messages=(Message.user(text),), tools=())


def summarized(summary: str, tail: Sequence[Message]) -> tuple[Message, ...]:
    """Return the context behind a summary."""
    return (Message.notice(PREFACE + summary), *tail)


def cut(text: str, max_characters: int) -> str:
    """
    Leave out the middle of a text that is too long.

    Example:
        >>> cut("x" * 5_000 + "end", 100)[-30:]
        'xxxxxxxxxxxxxxxxxxxxxxxxxxxend'
    """
    if len(text) <= max_characters:
        return text
    head = max_characters * 2 // 3
    left_out = len(text) - max_characters
    return f"{text[:head]}\n[… {left_out:,} characters left out …]\n{text[len(text) - (max_characters - head) :]}"


def transcript(message: Message) -> Iterable[str]:
    """
    Return the parts of a message as a reader sees them.

    Example:
        >>> list(transcript(Message.user("Why?")))
        ['[user] Why?']
    """
    who = "assistant" if message.role == "assistant" else "notice" if message.is_notice else "user"
    for block in message.content:
        if isinstance(block, TextBlock):
            yield f"[{who}] {block.text}"
        elif isinstance(block, Image):
            yield f"[{who}] (an image)"
        elif isinstance(block, ToolCall):
            args = block.invalid_json or json.dumps(block.args, ensure_ascii=False)
            yield f"[{who} calls {block.name}] {args}"
        elif isinstance(block, ToolResultBlock):
            images = sum(isinstance(part, Image) for part in block.content)
            yield f"[result: {block.outcome}] {block.text}{' (an image)' * images}"


def _text(block: object) -> str:
    if isinstance(block, TextBlock):
        return block.text
    if isinstance(block, ToolCall):
        return block.invalid_json or json.dumps({block.name: block.args}, ensure_ascii=False)
    return json.dumps(getattr(block, "data", None), ensure_ascii=False)
