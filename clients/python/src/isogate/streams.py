"""Decoders of responses that arrive piece by piece. No I/O: both clients share this module."""

from __future__ import annotations

import json
from typing import Any, Literal, Protocol, TypeVar

from . import answers
from .errors import BadAnswer, ContactLost, of_event

T = TypeVar("T")


class Decoder(Protocol[T]):
    """Turns the bytes of one response into values. An object serves one response, in one thread at a time."""

    def feed(self, data: bytes) -> list[T]:
        """The values that these bytes complete."""

    def end(self) -> None:
        """The response has ended. Raises ContactLost if that was too early."""


class Pieces:
    """The bytes unchanged, without the first `skip`. HTTP's own framing shows whether they are complete."""

    def __init__(self, skip: int = 0) -> None:
        self._skip = skip

    def feed(self, data: bytes) -> list[bytes]:
        rest = data[self._skip :]
        self._skip -= len(data) - len(rest)
        return [rest] if rest else []

    def end(self) -> None:
        pass


class _Lines:
    """Lines that end with a newline, without it."""

    def __init__(self) -> None:
        self._kept: list[bytes] = []

    def feed(self, data: bytes) -> list[bytes]:
        *whole, rest = data.split(b"\n")
        if whole:
            whole[0] = b"".join(self._kept) + whole[0]
            self._kept.clear()
        if rest:
            self._kept.append(rest)
        return whole


def _parsed(text: bytes) -> Any:
    try:
        return json.loads(text)
    except ValueError as error:
        raise BadAnswer(f"an event is no JSON: {text[:100]!r}") from error


class ExecEventsSoFar:
    """Events of an exec as NDJSON. The stream may end anywhere between two of them."""

    def __init__(self) -> None:
        self._lines = _Lines()
        self._ended = False

    def feed(self, data: bytes) -> list[answers.ExecEvent]:
        events = []
        for line in self._lines.feed(data):
            event = answers.exec_event(_parsed(line)) if line else None
            if event is not None:
                self._ended = isinstance(event, answers.ExitEvent)
                events.append(event)
        return events

    def end(self) -> None:
        pass


class ExecEvents(ExecEventsSoFar):
    """Events of an exec to the last, which is an ExitEvent."""

    def end(self) -> None:
        if not self._ended:
            raise ContactLost("the stream ended without an exit event: what became of the program is not known")


class Capture:
    """Collects one exec's events, for a caller that reads them to the end: at most `limit` bytes of each stream."""

    def __init__(self, limit: int) -> None:
        self.truncated = False  #: there was more
        self._limit = limit
        self._kept = {"stdout": bytearray(), "stderr": bytearray()}
        self._ending: answers.Ending | None = None

    def add(self, event: answers.ExecEvent) -> None:
        if isinstance(event, answers.OutputEvent):
            kept = self._kept[event.stream]
            room = self._limit - len(kept)
            kept += event.data[:room]
            self.truncated = self.truncated or len(event.data) > room
        elif isinstance(event, answers.ExitEvent):
            self._ending = event.ending

    def text(self, stream: Literal["stdout", "stderr"]) -> str:
        """As UTF-8; other bytes become U+FFFD."""
        return self._kept[stream].decode(errors="replace")

    def ending(self) -> answers.Ending:
        """How it ended. If it was not started, or its end is not known, raises what `exec` raises."""
        if self._ending is None:
            raise ContactLost("the exec has no exit event")
        if self._ending.outcome == "not_started":
            raise of_event(self._ending.error_code, self._ending.error_message)
        if self._ending.outcome == "unknown":
            reason = self._ending.reason or "contact with the sandbox was lost"
            raise of_event("outcome_unknown", f"what became of the program is not known: {reason}")
        return self._ending


class WatchEvents:
    """Server-Sent Events of a watch, to the last, which is a WatchEnd."""

    def __init__(self) -> None:
        self._lines = _Lines()
        self._kind = ""
        self._data = b""
        self._ended = False

    def feed(self, data: bytes) -> list[answers.WatchEvent]:
        events = []
        for line in self._lines.feed(data):
            field, _, value = line.rstrip(b"\r").partition(b":")
            value = value.removeprefix(b" ")
            if field == b"event":
                self._kind = value.decode()
            elif field == b"data":
                self._data += value
            elif not line.rstrip(b"\r") and self._kind:
                event = answers.watch_event(self._kind, _parsed(self._data or b"{}"))
                self._kind, self._data = "", b""
                if event is not None:
                    self._ended = isinstance(event, answers.WatchEnd)
                    events.append(event)
        return events

    def end(self) -> None:
        if not self._ended:
            raise ContactLost("the watch ended without an end event: changes may be missing")
