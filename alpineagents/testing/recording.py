"""
A model whose replies are recorded once and replayed after, for tests that need no key and no network.

    {"format": 1, "model": "claude-sonnet-5", "replies": [
    {"request": <SHA-256 of the request>, "asked": "How high …", "reply": {…}}, …]}
"""

from __future__ import annotations

import hashlib
from pathlib import Path

import anyio
from pydantic import BaseModel, ConfigDict, ValidationError

from alpineagents.errors import ConfigError
from alpineagents.messages import Reply, Request
from alpineagents.models import resolve_model
from alpineagents.models.base import Emit, Model
from alpineagents.stores.codec import ascii_json, from_json
from alpineagents.testing.model import show

FORMAT = 1


class _Recorded(BaseModel):
    model_config = ConfigDict(extra="forbid")

    request: str
    asked: str
    reply: Reply


class _Recording(BaseModel):
    model_config = ConfigDict(extra="forbid")

    format: int = FORMAT
    model: str
    replies: list[_Recorded] = []


class RecordedModel:
    """
    A model that replays what another one replied; `record_model` makes it.

    Attributes:
        name: of the model that was recorded.
    """

    def __init__(self, model: Model | str, path: Path) -> None:
        self._model, self._path = model, path
        # What is there is replayed and never added to: a test that asks something else has changed.
        self._replays = path.exists()
        self._recording = _read(path) if self._replays else None
        self._given: dict[str, int] = {}

    @property
    def name(self) -> str:
        return self._recording.model if self._recording is not None else self._real().name

    async def respond(self, request: Request, *, emit: Emit | None = None) -> Reply:
        """
        Give the recorded reply to the request; record it, where there is no recording yet.

        Raises:
            ConfigError: the request is not one of those that were recorded.
            ModelError: the model gave no reply to record.
        """
        digest = hashlib.sha256(ascii_json(request).encode()).hexdigest()
        if not self._replays:
            return await self._record(digest, request, emit)
        assert self._recording is not None
        await anyio.lowlevel.checkpoint()
        replies = [each.reply for each in self._recording.replies if each.request == digest]
        if not replies:
            raise ConfigError(
                f"{str(self._path)!r} has no reply to {_asked(request)!r}: what leads up to it has changed "
                "since it was recorded. Delete the file to record it anew"
            )
        place = self._given.get(digest, 0)
        self._given[digest] = place + 1
        reply = replies[min(place, len(replies) - 1)]
        show(reply, emit)
        return reply

    async def _record(self, digest: str, request: Request, emit: Emit | None) -> Reply:
        model = self._real()
        reply = await model.respond(request, emit=emit)
        if self._recording is None:
            self._recording = _Recording(model=model.name)
        self._recording.replies.append(_Recorded(request=digest, asked=_asked(request), reply=reply))
        new = anyio.Path(self._path.with_name(f"{self._path.name}.new"))
        lines = ascii_json(self._recording).replace('{"request":', '\n{"request":')
        await new.write_text(lines + "\n", encoding="ascii")
        await new.replace(self._path)
        return reply

    def _real(self) -> Model:
        if isinstance(self._model, str):
            self._model = resolve_model(self._model)
        return self._model

    async def aclose(self) -> None:
        """Close the model, where it was needed."""
        if not isinstance(self._model, str):
            await self._model.aclose()


def record_model(model: Model | str, path: str | Path) -> RecordedModel:
    """
    Record a model's replies in a file; once the file is there, replay them.

    Keep the file with your tests. It holds what was said, and no key. A request is found again by all that it says: who
    changes the prompt, a tool or a result deletes the file and records anew.

    Args:
        model: the model, or its name, which needs a key only while there is no file.
        path: of the file; the folder around it must be there.

    Raises:
        ConfigError: the file is not such a recording.

    Example:
        >>> import tempfile
        >>> from alpineagents import Agent
        >>> from alpineagents.testing import FakeModel
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     first = Agent(record_model(FakeModel(["4,478 m"]), f"{folder}/height.json")).run_sync("How high?")
        ...     again = Agent(record_model(FakeModel([]), f"{folder}/height.json")).run_sync("How high?")
        >>> first, again
        ('4,478 m', '4,478 m')
    """
    return RecordedModel(model, Path(path))


def _read(path: Path) -> _Recording:
    try:
        recording = from_json(_Recording, path.read_text(encoding="utf-8"))
    except (ValidationError, ValueError) as error:
        raise ConfigError(f"{str(path)!r} is not a recording of a model. Delete it to record one") from error
    if recording.format != FORMAT:
        raise ConfigError(f"{str(path)!r} has format {recording.format}, this release reads {FORMAT}. Delete the file")
    return recording


def _asked(request: Request) -> str:
    last = request.messages[-1]
    return (last.text or "".join(result.text for result in last.tool_results))[:80]
