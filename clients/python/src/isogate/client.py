"""The synchronous client."""

from __future__ import annotations

import math
import time
from types import TracebackType
from typing import Callable, Concatenate, Generator, Generic, Iterator, ParamSpec, TypeVar

import httpx

from . import calls, gateway, transport
from .answers import Ending, ExecState
from .calls import Call, Request, StreamCall, Streamed
from .errors import IsogateError, refusal
from .streams import Decoder

P = ParamSpec("P")
T = TypeVar("T")

#: A long poll for the end of an exec, in seconds.
POLL_SEC = 30.0
_EARLY_SEC = 1.0
_LEARNED_SEC = 60.0


class AdmittedTime:
    """The longest time of a command that the operator admits, as a refusal named it: for a minute, a reload may raise it."""

    def __init__(self) -> None:
        self._limit_sec = self._until = 0.0

    def at_most(self, timeout_sec: float) -> float:
        return min(timeout_sec, self._limit_sec) if time.monotonic() < self._until else timeout_sec

    def learn(self, limit_sec: float) -> None:
        self._limit_sec, self._until = limit_sec, time.monotonic() + _LEARNED_SEC


def early_sec(due: float) -> float:
    """How long to wait before the next poll, when one that was due at that time has returned."""
    return max(0.0, min(_EARLY_SEC, due - time.monotonic()))


class Stream(Generic[T]):
    """Values that arrive piece by piece. Iterate over it; closing it closes the connection.

    Use it with `with`, or call `close()`; at its end it closes itself. ContactLost if it is read after it was closed or
    failed before its end. One thread at a time.
    """

    def __init__(self, response: httpx.Response, decoder: Decoder[T]) -> None:
        self._response = response
        self._ended = False
        self._values = self._decoded(decoder)

    def _decoded(self, decoder: Decoder[T]) -> Generator[T, None, None]:
        try:
            with transport.translated():
                for data in self._response.iter_raw():
                    yield from transport.fed(decoder, data)
            decoder.end()
            self._ended = True
        finally:
            self._response.close()

    def __iter__(self) -> Iterator[T]:
        return self

    def __next__(self) -> T:
        try:
            return next(self._values)
        except StopIteration:
            if self._ended:
                raise
            raise transport.cut_short() from None

    def close(self) -> None:
        self._values.close()
        self._response.close()  # of a stream that was never read

    def __enter__(self) -> Stream[T]:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _synchronous(content: bytes | Streamed | None) -> bytes | Iterator[bytes] | None:
    if content is None or transport.is_piece(content):
        return content
    return transport.pieces(content)


def _read(response: httpx.Response) -> bytes:
    try:
        return b"".join(response.iter_raw())
    finally:
        response.close()


class _Connection(transport.Connection[httpx.Client]):
    """Sends requests. Any thread may."""

    def run(self, call: Call[T]) -> T:
        attempts = self.attempts(call.request)
        while True:
            try:
                return self.run_once(call)
            except IsogateError as error:
                time.sleep(attempts.wait_sec(error))

    def run_once(self, call: Call[T]) -> T:
        with transport.translated():
            response = self._send(call.request)
            body = _read(response)
        return transport.result(call, response, body)

    def stream(self, call: StreamCall[T]) -> Stream[T]:
        attempts = self.attempts(call.request)
        while True:
            try:
                with transport.translated():
                    response = self._send(call.request)
                    if transport.is_answer(call, response):
                        return Stream(response, call.decoder(response.status_code))
                    body = _read(response)
                raise refusal(response.status_code, response.headers, body)
            except IsogateError as error:
                time.sleep(attempts.wait_sec(error))

    def _send(self, request: Request) -> httpx.Response:
        return self.http.send(self.built(request, _synchronous(request.content)), stream=True)


_Handle = transport.Handle[_Connection]


def _call(build: Callable[Concatenate[str, P], Call[T]]) -> Callable[Concatenate[_Handle, P], T]:
    @transport.shaped(build, in_place_of=1)
    def method(self: _Handle, /, *args: P.args, **options: P.kwargs) -> T:
        return self._connection.run(build(self._subject, *args, **options))

    return method


def _stream(build: Callable[Concatenate[str, P], StreamCall[T]]) -> Callable[Concatenate[_Handle, P], Stream[T]]:
    @transport.shaped(build, in_place_of=1)
    def method(self: _Handle, /, *args: P.args, **options: P.kwargs) -> Stream[T]:
        return self._connection.stream(build(self._subject, *args, **options))

    return method


def _start(build: Callable[Concatenate[str, P], Call[ExecState]]) -> Callable[Concatenate[_Handle, P], Exec]:
    @transport.shaped(build, in_place_of=1)
    def method(self: _Handle, /, *args: P.args, **options: P.kwargs) -> Exec:
        return Exec(self._connection, self._connection.run(build(self._subject, *args, **options)).exec_id)

    return method


class Exec(_Handle):
    """A long-lived exec. It continues when the handle, or the whole program, is gone. Any thread may call it."""

    @property
    def exec_id(self) -> str:
        """Names it in the API."""
        return self._subject

    state = _call(calls.exec_state)
    output = _stream(calls.exec_output)
    write_stdin = _call(calls.write_exec_stdin)
    close_stdin = _call(calls.close_exec_stdin)
    signal = _call(calls.signal_exec)
    resize = _call(calls.resize_exec)
    kill = _call(calls.kill_exec)

    def wait(self, timeout_sec: float | None = None) -> Ending:
        """Wait until it has ended. TimeoutError after `timeout_sec`; the exec then continues.

        A refusal that would be sent again only after that time is raised.
        """
        until = math.inf if timeout_sec is None else time.monotonic() + timeout_sec
        attempts: transport.Attempts | None = None
        while True:
            now = time.monotonic()
            left = max(0.0, min(POLL_SEC, until - now))
            call = calls.exec_state(self.exec_id, wait_sec=left)
            attempts = attempts or self._connection.attempts(call.request)
            try:
                found = self._connection.run_once(call)
            except IsogateError as error:
                time.sleep(attempts.wait_sec(error, until))
                continue
            if found.ending is not None:
                return found.ending
            if left == 0:
                raise TimeoutError(f"exec {self.exec_id} still runs")
            attempts = None
            time.sleep(early_sec(now + left))


class Sandbox(_Handle):
    """The sandbox of one agent. Its first call creates it. The handle owns nothing: the sandbox stays until `end()`.

    Any thread may call it. Paths are relative to the workspace, or absolute with `scope="sandbox"`.
    """

    @property
    def agent_id(self) -> str:
        """The agent whose sandbox it is."""
        return self._subject

    exec = _call(calls.exec)
    exec_stream = _stream(calls.exec_stream)
    start = _start(calls.start)
    read_file = _call(calls.read_file)
    read_text = _call(calls.read_text)
    iter_file = _stream(calls.iter_file)
    file_size = _call(calls.file_size)
    write_file = _call(calls.write_file)
    ls = _call(calls.list_directory)
    stat = _call(calls.stat)
    mkdir = _call(calls.make_directory)
    move = _call(calls.move)
    remove = _call(calls.remove)
    watch = _stream(calls.watch)
    download_archive = _stream(calls.download_archive)
    upload_archive = _call(calls.upload_archive)
    create = _call(calls.create_sandbox)
    end = _call(calls.end_sandbox)


def _of_gateway(build: Callable[P, Call[T]]) -> Callable[Concatenate[Isogate, P], T]:
    @transport.shaped(build)
    def method(self: Isogate, /, *args: P.args, **options: P.kwargs) -> T:
        return self._connection.run(build(*args, **options))

    return method


class Isogate:
    """A gateway. Any thread may call it; `close()`, or leaving `with`, closes its connections and ends no sandbox.

    Which gateway and which key: see `gateway.find()`. `retries`: how often a call is tried again where nothing can have
    happened (no connection; or refused as `retryable` with Retry-After), each time after at most `longest_wait_sec`.
    `http_transport` takes the place of the network, in tests.
    """

    def __init__(
        self,
        base_url: str | None = None,
        key: str | None = None,
        *,
        ca_file: str | None = None,
        state_dir: str | None = None,
        retries: int = 3,
        longest_wait_sec: float = 10.0,
        http_transport: httpx.BaseTransport | None = None,
    ) -> None:
        self.gateway = gateway.find(base_url, key, ca_file, state_dir)
        if http_transport is None:
            http_transport = httpx.HTTPTransport(**transport.options_of(self.gateway))
        http = httpx.Client(transport=http_transport, headers=transport.headers_of(self.gateway))
        self._connection = _Connection(http, self.gateway.base_url, retries, longest_wait_sec)

    def close(self) -> None:
        self._connection.http.close()

    def __enter__(self) -> Isogate:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def sandbox(self, agent_id: str = "default") -> Sandbox:
        """A handle of that agent's sandbox; sends nothing."""
        return Sandbox(self._connection, agent_id)

    def exec(self, exec_id: str) -> Exec:
        """A handle of a long-lived exec that was started before; sends nothing."""
        return Exec(self._connection, exec_id)

    execs = _of_gateway(calls.list_execs)
    sandboxes = _of_gateway(calls.list_sandboxes)
    backends = _of_gateway(calls.list_backends)
    health = _of_gateway(calls.health)
    check_ready = _of_gateway(calls.check_ready)
    metrics = _of_gateway(calls.metrics)
    openapi = _of_gateway(calls.openapi)
