"""
A TCP proxy between a store and its server, for the failures of a network: it cuts, refuses, holds back, loses
and forgets.

What the client sends always reaches the server at once. A reply is what the server sends in one go, so the statement
whose reply is lost or held back has been carried out.
"""

from __future__ import annotations

import asyncio
from types import TracebackType
from typing import Self

from sqlalchemy import make_url


class Proxy:
    """
    A proxy on a free loopback port, in the event loop of its test.

    Attributes:
        lost: whether the reply that `lose_reply` named has been lost.
        held: set as soon as a reply is held back.
    """

    def __init__(self, url: str) -> None:
        self._target = make_url(url)
        self._listener: asyncio.Server | None = None
        self._port = 0
        self._writers: set[asyncio.StreamWriter] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._stranded: set[asyncio.StreamWriter] = set()
        self._flowing = asyncio.Event()
        self._flowing.set()
        self._to_hold: int | None = None
        self._to_go: int | None = None
        self._then_refuse = False
        self.lost = False
        self.held = asyncio.Event()

    @property
    def url(self) -> str:
        """The URL of the database by way of the proxy."""
        return self._target.set(host="127.0.0.1", port=self._port).render_as_string(hide_password=False)

    @property
    def connections(self) -> int:
        """How many connections go through it."""
        return len(self._writers) // 2

    def lose_reply(self, number: int = 1, *, then_refuse: bool = False) -> None:
        """Lose the n-th reply from now on and cut the connection it belongs to; 1 is the next."""
        self._to_go, self._then_refuse, self.lost = number, then_refuse, False

    def lose_nothing(self) -> None:
        """Forget what `lose_reply` asked for."""
        self._to_go = None

    def hold_replies(self, number: int = 1) -> None:
        """Keep the n-th reply from now on and every later one back until `release`."""
        self.held.clear()
        self._to_hold = number

    def release(self) -> None:
        """Pass on what was held back, and hold back nothing more."""
        self._to_hold = None
        self._flowing.set()

    def strand(self) -> None:
        """Carry nothing more on the connections there are and tell nobody, as a firewall that forgot them does."""
        self._stranded |= self._writers

    def cut(self) -> None:
        """Reset every connection, on both sides."""
        for writer in list(self._writers):
            writer.transport.abort()

    def refuse(self) -> None:
        """Cut every connection and let nobody connect, as if nothing listened here."""
        assert self._listener is not None
        self._listener.close()
        self.cut()

    async def accept(self) -> None:
        """Let clients connect, at the same port as ever."""
        if self._listener is not None and self._listener.is_serving():
            return
        self._listener = await asyncio.start_server(self._serve, "127.0.0.1", self._port)
        self._port = self._listener.sockets[0].getsockname()[1]

    async def __aenter__(self) -> Self:
        await self.accept()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.release()
        self.refuse()
        if self._tasks:
            await asyncio.wait(self._tasks)

    async def _serve(self, from_client: asyncio.StreamReader, to_client: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        try:
            from_server, to_server = await asyncio.open_connection(self._target.host, self._target.port)
        except OSError:
            to_client.transport.abort()
            return
        pair = {to_client, to_server}
        self._writers |= pair
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._pump(from_client, to_server, pair))
                group.create_task(self._pump(from_server, to_client, pair, replies=True))
        finally:
            self._writers -= pair
            self._stranded -= pair

    async def _pump(
        self,
        source: asyncio.StreamReader,
        target: asyncio.StreamWriter,
        pair: set[asyncio.StreamWriter],
        *,
        replies: bool = False,
    ) -> None:
        try:
            while data := await source.read(1 << 16):
                if replies and await self._is_lost():
                    break
                if target in self._stranded:
                    continue
                target.write(data)
                await target.drain()
        except OSError:
            pass
        finally:
            # One side has ended, so the other does too: what was written to it still goes out, unless it was cut.
            for writer in pair:
                writer.close()

    async def _is_lost(self) -> bool:
        if self._to_hold is not None:
            self._to_hold -= 1
            if self._to_hold == 0:
                self._flowing.clear()
                self.held.set()
        await self._flowing.wait()
        if self._to_go is None:
            return False
        self._to_go -= 1
        if self._to_go:
            return False
        self._to_go, self.lost = None, True
        if self._then_refuse:
            self.refuse()
        return True
