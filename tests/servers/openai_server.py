"""
A server on loopback that speaks the streaming Chat Completions format, and misbehaves on demand.

    with OpenAIServer(says("Hello"), status(500), says("again")) as server:
        model = OpenAICompatible("test", base_url=server.base_url)

Each request gets the next Answer. An Answer is a list of steps on the wire: bytes, or something that goes wrong. The
server lives in threads of its own, so that it serves asyncio, trio and other processes alike.
"""

from __future__ import annotations

import contextlib
import enum
import json
import socket
import socketserver
import struct
import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from http.server import BaseHTTPRequestHandler
from types import TracebackType
from typing import Any, Self

Wire = dict[str, Any]

USAGE: Wire = {
    "prompt_tokens": 12,
    "completion_tokens": 5,
    "total_tokens": 17,
    "prompt_tokens_details": {"cached_tokens": 8},
    "completion_tokens_details": {"reasoning_tokens": 2},
}


class Step(enum.Enum):
    """What can go wrong between two bytes."""

    STALL = "say nothing more until the server is released"
    DROP = "reset the connection"


@dataclass(frozen=True)
class Repeat:
    """These bytes, again and again, until the client has gone or the server is released."""

    data: bytes


@dataclass(frozen=True)
class Answer:
    """
    What the server does with one request.

    Attributes:
        steps: what happens on the wire after the headers, one after the other.
        before_headers: what happens before them.
        reason: the words beside the status; otherwise the usual ones.
    """

    steps: tuple[bytes | Step | Repeat, ...] = ()
    status: int = 200
    content_type: str = "text/event-stream"
    headers: dict[str, str] = field(default_factory=dict)
    before_headers: Step | None = None
    reason: str | None = None

    def then(self, *steps: bytes | Step | Repeat) -> Answer:
        """Return the same with more steps."""
        return replace(self, steps=self.steps + steps)


@dataclass(frozen=True)
class Received:
    """A request as it came."""

    path: str
    headers: dict[str, str]
    body: Any
    raw: bytes


Script = Callable[[Received], Answer]


# ------------------------------------------------------------------------------------------------ answers


def event(data: Wire | str) -> bytes:
    """Return one SSE event."""
    return f"data: {data if isinstance(data, str) else json.dumps(data)}\n\n".encode()


DONE = event("[DONE]")


def chunk(delta: Wire | None = None, *, finish_reason: str | None = None, **fields: Any) -> Wire:
    """Return one chunk as OpenAI sends it; `fields` are added or replace others."""
    return {
        "id": "chatcmpl-1",
        "object": "chat.completion.chunk",
        "created": 1764400000,
        "model": "test-model-2025",
        "choices": [{"index": 0, "delta": delta or {}, "finish_reason": finish_reason}],
        **fields,
    }


def usage_chunk(usage: Wire = USAGE) -> Wire:
    """Return the last chunk, which holds the usage and no choice."""
    return chunk(choices=[], usage=usage)


def stream(*chunks: Wire, done: bool = True) -> Answer:
    """Answer with these chunks, and then with the end mark."""
    return Answer(tuple(event(item) for item in chunks) + ((DONE,) if done else ()))


def says(*texts: str, usage: Wire | None = USAGE, finish_reason: str = "stop") -> Answer:
    """Answer with a text in pieces, as OpenAI does."""
    return stream(
        chunk({"role": "assistant", "content": ""}),
        *(chunk({"content": text}) for text in texts),
        chunk(finish_reason=finish_reason),
        *([usage_chunk(usage)] if usage else []),
    )


def calls(*wanted: tuple[str, Wire], text: str = "") -> Answer:
    """Answer with tool calls, whose arguments come in pieces, as OpenAI does."""
    pieces: list[Wire] = [chunk({"role": "assistant", "content": text or None})]
    for index, (name, args) in enumerate(wanted):
        head = {"index": index, "id": f"call_{index}x", "type": "function", "function": {"name": name, "arguments": ""}}
        pieces.append(chunk({"tool_calls": [head]}))
        written = json.dumps(args)
        half = len(written) // 2
        parts = (written[:half], written[half:])
        pieces += [chunk({"tool_calls": [{"index": index, "function": {"arguments": part}}]}) for part in parts]
    return stream(*pieces, chunk(finish_reason="tool_calls"), usage_chunk())


def begins(*texts: str) -> Answer:
    """Answer with the first part of a stream; `.then(…)` says how it goes on, and by itself it just ends."""
    return stream(
        chunk({"role": "assistant", "content": ""}), *(chunk({"content": text}) for text in texts), done=False
    )


def status(number: int, message: str = "it failed", *, headers: dict[str, str] | None = None, **error: Any) -> Answer:
    """Refuse with an error body as OpenAI's; `error` adds fields such as `code` and `type`."""
    body = json.dumps({"error": {"message": message, "type": None, "param": None, "code": None, **error}}).encode()
    return Answer((body,), number, "application/json", {"x-request-id": "req_7", **(headers or {})})


def context_too_long() -> Answer:
    """Refuse a request that is too long, as OpenAI does."""
    return status(
        400,
        "This model's maximum context length is 8192 tokens. However, your messages resulted in 9001 tokens.",
        code="context_length_exceeded",
        type="invalid_request_error",
    )


def page(html: str = "<html><title>Sign in</title></html>") -> Answer:
    """Answer with a web page, as a proxy or a wrong address does."""
    return Answer((html.encode(),), content_type="text/html; charset=utf-8")


def silent() -> Answer:
    """Take the request and say nothing at all."""
    return Answer(before_headers=Step.STALL)


# ------------------------------------------------------------------------------------------------ the server


class OpenAIServer:
    """
    Serves answers in order, or those of a function of the request; a request beyond the last one gets a 500.

    Attributes:
        requests: what came, in order.
        stalled: set once the server has come to a Step.STALL.
        hung_up: set once a client has closed a connection in mid-answer.
    """

    def __init__(self, *answers: Answer, script: Script | None = None) -> None:
        self._answers = list(answers)
        self._script = script
        self._lock = threading.Lock()
        self._release = threading.Event()
        self.requests: list[Received] = []
        self.connections = 0
        self.stalled = threading.Event()
        self.hung_up = threading.Event()
        self._server = _Server(self)
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)

    @property
    def base_url(self) -> str:
        """Where a client, also of another process, finds it."""
        return f"http://127.0.0.1:{self._server.server_address[1]}/v1"

    @property
    def bodies(self) -> list[Any]:
        """The JSON bodies of the requests."""
        return [request.body for request in self.requests]

    def add(self, *answers: Answer) -> None:
        """Append more answers."""
        with self._lock:
            self._answers += answers

    def release(self) -> None:
        """Let everything go on that stalls, now and later."""
        self._release.set()

    def is_released(self, wait: float) -> bool:
        """Tell whether everything is to go on; wait some seconds for that."""
        return self._release.wait(wait)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._release.set()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def take(self, received: Received) -> Answer:
        """Note a request and return what to do with it."""
        with self._lock:
            self.requests.append(received)
            if self._script is None:
                return self._answers.pop(0) if self._answers else status(500, "the test gave no more answers")
        return self._script(received)

    def stall(self) -> None:
        """Wait until released."""
        self.stalled.set()
        self._release.wait()


class _Server(socketserver.ThreadingMixIn, socketserver.TCPServer):
    daemon_threads = False  # So that server_close waits for the threads.
    allow_reuse_address = True
    request_queue_size = 256

    def __init__(self, owner: OpenAIServer) -> None:
        self.owner = owner
        self._open: set[socket.socket] = set()
        super().__init__(("127.0.0.1", 0), _Handler)

    def process_request(self, request: Any, client_address: Any) -> None:
        self._open.add(request)
        self.owner.connections += 1
        super().process_request(request, client_address)

    def shutdown_request(self, request: Any) -> None:
        self._open.discard(request)
        super().shutdown_request(request)

    def server_close(self) -> None:
        # Kept-alive connections wait for a next request, and their threads with them.
        for connection in list(self._open):
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)
        super().server_close()

    def handle_error(self, request: Any, client_address: Any) -> None:
        self.owner.hung_up.set()


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: _Server

    def setup(self) -> None:
        super().setup()
        self.connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def do_POST(self) -> None:
        raw = self.rfile.read(int(self.headers.get("content-length", "0")))
        headers = {name.lower(): value for name, value in self.headers.items()}
        answer = self.server.owner.take(Received(self.path, headers, json.loads(raw), raw))
        if answer.before_headers is not None and self._go_wrong(answer.before_headers):
            return
        self.send_response(answer.status, answer.reason)
        if answer.content_type:
            self.send_header("Content-Type", answer.content_type)
        self.send_header("Transfer-Encoding", "chunked")
        for name, value in answer.headers.items():
            self.send_header(name, value)
        self.end_headers()
        for step in answer.steps:
            if isinstance(step, Step):
                if self._go_wrong(step):
                    return
            elif isinstance(step, Repeat):
                while not self.server.owner.is_released(0.02):
                    self._send(step.data)
            else:
                self._send(step)
        self.wfile.write(b"0\r\n\r\n")

    def _send(self, data: bytes) -> None:
        self.wfile.write(f"{len(data):x}\r\n".encode() + data + b"\r\n")

    def _go_wrong(self, step: Step) -> bool:
        if step is Step.STALL:
            self.server.owner.stall()
            return False
        # Closed with SO_LINGER at 0, the connection is reset.
        self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.rfile.close()
        self.wfile.close()
        self.connection.close()
        self.close_connection = True
        return True

    def finish(self) -> None:
        if not self.wfile.closed:
            super().finish()

    def log_message(self, format: str, *args: Any) -> None:
        pass


def chunks_of(answer: Answer) -> Iterable[Wire]:
    """Return the chunks that a well-behaved answer sends, parsed."""
    for step in answer.steps:
        if isinstance(step, bytes) and step != DONE:
            yield json.loads(step.decode().removeprefix("data: "))
