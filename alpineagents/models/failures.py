"""
What went wrong at a model API, as an error for the caller: by status and code, without secrets.

Pure: the HTTP client hands in what it met. The codes are those of the OpenAI API reference (error codes, 2025), of
Anthropic's (errors, 2025) and of llama.cpp's server.
"""

from __future__ import annotations

import dataclasses
import email.utils
import json
import math
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime

from pydantic import JsonValue

from alpineagents.errors import AuthError, ContextTooLongError, ModelError, ProviderError, RateLimitError
from alpineagents.models.secrets import Secrets

MESSAGE_LENGTH = 1_000
"""How much of a server's own words an error keeps."""

_CONTEXT_CODES = {"context_length_exceeded", "exceed_context_size_error", "request_too_large"}
_AUTH_CODES = {"invalid_api_key", "authentication_error", "permission_error"}
_RATE_CODES = {"rate_limit_exceeded", "rate_limit_error"}
_FINAL_CODES = {
    "insufficient_quota",
    "billing_hard_limit_reached",
    "invalid_request_error",
    "contract_spend_limit_reached",
    "enforced_spend_limit_reached",
}
# Anthropic's API has no code for it: the type is that of any bad request.
_CONTEXT_WORDS = ("prompt is too long", "exceed context limit")
_RETRIED_STATUSES = {408, 409, 429}


class AttemptError(Exception):
    """An attempt that gave no reply: the error for the caller, and whether and when to try again."""

    def __init__(self, error: ModelError, *, again: bool, wait: float | None = None) -> None:
        self.error, self.again, self.wait = error, again, wait
        super().__init__(str(error))


@dataclasses.dataclass(frozen=True)
class _Told:
    """What an error body says."""

    message: str
    codes: frozenset[str] = frozenset()
    status: int | None = None


class Failures:
    """
    Words the failures of one endpoint.

    Args:
        base_url: how to name the endpoint.
        key_hint: where its key comes from.
        secrets: what no error may show; empty where no key is sent.
    """

    def __init__(self, base_url: str, key_hint: str, secrets: Iterable[str]) -> None:
        self._base_url, self._key_hint = base_url, key_hint
        self._secrets = Secrets(secrets)

    def refused(self, status: int, reason: str, body: str, headers: Mapping[str, str]) -> AttemptError:
        """Translate an answer whose status says that it is no reply."""
        said = f"{self._base_url} answered {status} {self.scrub(reason, 100)}".rstrip()
        failure = self._translate(_read_body(body), status, said, headers)
        failure.error.charged = False
        return failure

    def broken_off(self, event: dict[str, JsonValue], headers: Mapping[str, str]) -> AttemptError:
        """Translate an event of a stream that says what went wrong."""
        told = _read_error(event)
        return self._translate(told, told.status, f"{self._base_url} broke off the reply", headers)

    def no_stream(self, media_type: str, body: str, headers: Mapping[str, str]) -> AttemptError:
        """Translate an answer that claims success and is no event stream, such as a login page."""
        said = self.scrub(_read_body(body).message)
        kind = self.scrub(media_type, 100) or "no content type"
        text = (
            f"{self._base_url} answered with {kind!r} where an event stream "
            f"(text/event-stream) was asked for: {said!r}. Check base_url: it mostly ends in /v1"
        )
        return AttemptError(ProviderError(text, status=200, request_id=self.request_id(headers)), again=False)

    def not_json(self, data: str, headers: Mapping[str, str]) -> AttemptError:
        """Translate an event that is not a JSON object."""
        text = (
            f"{self._base_url} sent an event that is not a JSON object: {self.scrub(data, 200)!r}. "
            "Check base_url: it has to be an API of this kind, and mostly ends in /v1"
        )
        return AttemptError(ProviderError(text, request_id=self.request_id(headers)), again=False)

    def stalled(self, seconds: float, headers: Mapping[str, str]) -> AttemptError:
        """Translate a stream of which nothing but signs of life came for too long."""
        text = (
            f"{self._base_url} sent nothing of the reply for {seconds:g} s. If the model needs longer, give timeout=…"
        )
        return AttemptError(ProviderError(text, request_id=self.request_id(headers)), again=True)

    def incomplete(self, headers: Mapping[str, str]) -> AttemptError:
        """Translate a stream that ended too early."""
        text = (
            f"the stream from {self._base_url} ended before the reply did: its final event never came. Try again; if "
            "it happens each time, a proxy on the way cuts it, or base_url is not an API of this kind"
        )
        return AttemptError(ProviderError(text, request_id=self.request_id(headers)), again=True)

    def scrub(self, text: str, length: int = MESSAGE_LENGTH) -> str:
        """Return a text without secrets, cut to a length."""
        # Secrets go before the cut, which could leave the first half of one.
        text = self._secrets.scrub(text)
        return text if len(text) <= length else text[: length - 1] + "…"

    def request_id(self, headers: Mapping[str, str]) -> str | None:
        """Return the provider's name for a request."""
        # Anthropic's own first: proxies add the other one to any answer.
        request_id = headers.get("request-id") or headers.get("x-request-id")
        return self.scrub(request_id, 100) if request_id else None

    def _translate(self, told: _Told, status: int | None, said: str, headers: Mapping[str, str]) -> AttemptError:
        kind = _kind(status, told.codes)
        text = said + (f": {self.scrub(told.message)}" if told.message else "") + self._hint(kind, status)
        request_id = self.request_id(headers)
        wait = retry_after(headers, now=datetime.now(UTC))
        again = status is None or status in _RETRIED_STATUSES or status >= 500
        # Some providers say in a header of their own whether it is worth it.
        again = {"true": True, "false": False}.get(headers.get("x-should-retry", ""), again)
        again = again and kind in (RateLimitError, ProviderError) and not told.codes & _FINAL_CODES
        if kind is RateLimitError:
            limited = RateLimitError(text, status=status, request_id=request_id, retry_after=wait)
            return AttemptError(limited, again=again, wait=wait)
        return AttemptError(kind(text, status=status, request_id=request_id), again=again, wait=wait)

    def _hint(self, kind: type[ModelError], status: int | None) -> str:
        if kind is AuthError and not self._secrets:
            return f". No key was sent: set {self._key_hint}"
        if kind is AuthError:
            return f". The key was refused: check {self._key_hint}"
        if kind is ContextTooLongError:
            return '. Shorten the conversation: state.compact("what matters of it so far")'
        if status is not None and (status < 400 or status in (404, 405)):
            return ". Check the model's name and base_url, which mostly ends in /v1"
        return ""


def retry_after(headers: Mapping[str, str], *, now: datetime) -> float | None:
    """
    Return how many seconds a server asks to wait, given as seconds or as an HTTP date.

    Example:
        >>> retry_after({"retry-after": "1.5"}, now=datetime.now(UTC))
        1.5
    """
    for name, unit in (("retry-after-ms", 0.001), ("retry-after", 1.0)):
        try:
            seconds = float(headers.get(name, "")) * unit
        except ValueError:
            continue
        return max(seconds, 0.0) if math.isfinite(seconds) else None
    try:
        at = email.utils.parsedate_to_datetime(headers.get("retry-after", ""))
    except ValueError:
        return None
    return max((at.replace(tzinfo=at.tzinfo or UTC) - now).total_seconds(), 0.0)


def _read_body(body: str) -> _Told:
    try:
        return _read_error(json.loads(body))
    except (ValueError, RecursionError):
        return _Told(" ".join(body.split()))


def says_error(event: Mapping[str, JsonValue]) -> bool:
    """
    Tell whether an event of a stream says that the reply failed.

    Example:
        >>> says_error({"error": {"message": "overloaded"}}), says_error({"choices": []})
        (True, False)
    """
    response = event.get("response")
    return bool(event.get("error") or (isinstance(response, dict) and response.get("error"))) or (
        event.get("type") == "error"
    )


def _read_error(body: object) -> _Told:
    if isinstance(body, list) and body:
        body = body[0]
    if isinstance(body, dict) and isinstance(body.get("response"), dict):
        body = body["response"]  # OpenAI's Responses API, in mid-stream.
    error = (body.get("error") or body) if isinstance(body, dict) else body
    if not isinstance(error, dict):
        return _Told(str(error))
    message = error.get("message") or error.get("detail") or error
    codes = {str(error[name]).lower() for name in ("code", "type") if error.get(name)}
    if isinstance(details := error.get("details"), dict) and details.get("error_code"):
        codes.add(str(details["error_code"]).lower())
    code = error.get("code")
    status = code if isinstance(code, int) and 400 <= code < 600 else None
    text = message if isinstance(message, str) else json.dumps(message)
    if error.get("type") == "invalid_request_error" and any(words in text for words in _CONTEXT_WORDS):
        codes.add("context_length_exceeded")
    return _Told(text, frozenset(codes), status)


def _kind(status: int | None, codes: frozenset[str]) -> type[ModelError]:
    # 413 also where a proxy gives it: whoever says it, the request has to become shorter.
    if status == 413 or codes & _CONTEXT_CODES:
        return ContextTooLongError
    if status in (401, 403) or codes & _AUTH_CODES:
        return AuthError
    if status == 429 or codes & _RATE_CODES:
        return RateLimitError
    return ProviderError
