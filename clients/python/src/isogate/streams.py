"""Decoders of answers that arrive piece by piece. No I/O: both clients share this module."""

from __future__ import annotations

import json
from typing import Any, Protocol, TypeVar

from . import answers
from .errors import BadAnswer, ContactLost

T = TypeVar("T")


class Decoder(Protocol[T]):
    """Makes values of the bytes of one answer. An object serves one answer, in one thread at a time."""

    def feed(self, data: bytes) -> list[T]:
        """The values that these bytes complete."""

    def end(self) -> None:
        """The answer has ended. Raises ContactLost where that was too early."""


class Pieces:
    """The bytes as they are. That they are all, HTTP's own framing says."""

    def feed(self, data: bytes) -> list[bytes]:
        return [data] if data else []

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
