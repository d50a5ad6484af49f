"""
A change of a State's extra data: a copy to work on, and at the end of the block one Event with the difference, or none.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pydantic import JsonValue

from alpineagents.values import storable

if TYPE_CHECKING:
    from types import TracebackType

    from alpineagents.state import State


class Edit:
    """What `State.edit_extra_data` gives; the same with `with` and `async with`."""

    def __init__(self, state: State) -> None:
        self._state = state
        self._before = state.snapshot()
        self._data: dict[str, JsonValue] = {}

    def __enter__(self) -> dict[str, JsonValue]:
        self._before = self._state.snapshot()
        data = storable(self._before.extra_data, "extra_data")
        assert isinstance(data, dict)
        self._data = data
        return data

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None:
            self._state.change_extra_data(self._before, self._data)

    async def __aenter__(self) -> dict[str, JsonValue]:
        return self.__enter__()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.__exit__(kind, error, trace)
