"""The asynchronous client, for asyncio and trio. The calls, their answers and their errors are those of `client`."""

from __future__ import annotations

import math
import time
from functools import cached_property
from types import TracebackType
from typing import AsyncGenerator, AsyncIterator, Awaitable, Callable, Concatenate, Generic, Iterator, ParamSpec, TypeVar

import anyio
import anyio.to_thread
import httpx

from . import calls, gateway, transport
from .answers import Ending, ExecState
from .calls import Call, Request, StreamCall, Streamed
from .client import POLL_SEC, early_sec
from .errors import IsogateError, refusal
from .streams import Decoder

P = ParamSpec("P")
T = TypeVar("T")

_READS = 100  # threads that read what tasks upload


class AsyncStream(Generic[T]):
    """Values that arrive piece by piece. Iterate over it; closing it closes the connection.

    Use it with `async with`, or await `aclose()`; at its end it closes itself. ContactLost if it is read after it was
    closed or failed before its end.
    """

    def __init__(self, response: httpx.Response, decoder: Decoder[T]) -> None:
        self._response = response
        self._ended = False
        self._values = self._decoded(decoder)

    async def _decoded(self, decoder: Decoder[T]) -> AsyncGenerator[T, None]:
        try:
            with transport.translated():
                async for data in self._response.aiter_raw():
                    for value in transport.fed(decoder, data):
                        yield value
            decoder.end()
            self._ended = True
        finally:
            await _closed(self._response)

    def __aiter__(self) -> AsyncIterator[T]:
        return self

    async def __anext__(self) -> T:
        try:
            return await anext(self._values)
        except StopAsyncIteration:
            if self._ended:
                raise
            raise transport.cut_short() from None

    async def aclose(self) -> None:
        await self._values.aclose()
        await _closed(self._response)  # of a stream that was never read

    async def __aenter__(self) -> AsyncStream[T]:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()


async def _closed(response: httpx.Response) -> None:
    """Closes the connection of a response, also in a task that is being cancelled."""
    with anyio.CancelScope(shield=True):
        await response.aclose()


async def _read(response: httpx.Response) -> bytes:
    try:
        return b"".join([data async for data in response.aiter_raw()])
    finally:
        await _closed(response)


async def _in_thread(pieces: Iterator[bytes], reads: anyio.CapacityLimiter) -> AsyncIterator[bytes]:
    """Pieces that may block, each read in a thread, which a task that is cancelled leaves to itself."""
    while (data := await anyio.to_thread.run_sync(next, pieces, None, abandon_on_cancel=True, limiter=reads)) is not None:
        yield data


async def _at_once(pieces: Iterator[bytes]) -> AsyncIterator[bytes]:
    for data in pieces:
        yield data


class _Connection(transport.Connection[httpx.AsyncClient]):
    """Sends requests, for any number of tasks of one event loop."""

    async def run(self, call: Call[T]) -> T:
        attempts = self.attempts(call.request)
        while True:
            try:
                return await self.run_once(call)
            except IsogateError as error:
                await anyio.sleep(attempts.wait_sec(error))

    async def run_once(self, call: Call[T]) -> T:
        with transport.translated():
            response = await self._send(call.request)
            body = await _read(response)
        return transport.result(call, response, body)

    async def stream(self, call: StreamCall[T]) -> AsyncStream[T]:
        attempts = self.attempts(call.request)
        while True:
            try:
                with transport.translated():
                    response = await self._send(call.request)
                    if transport.is_answer(call, response):
                        return AsyncStream(response, call.decoder(response.status_code))
                    body = await _read(response)
                raise refusal(response.status_code, response.headers, body)
            except IsogateError as error:
                await anyio.sleep(attempts.wait_sec(error))

    async def _send(self, request: Request) -> httpx.Response:
        return await self.http.send(self.built(request, self._asynchronous(request.content)), stream=True)

    def _asynchronous(self, content: bytes | Streamed | None) -> bytes | AsyncIterator[bytes] | None:
        if content is None or transport.is_piece(content):
            return content
        if hasattr(content, "__aiter__"):
            return content.__aiter__()
        pieces = transport.pieces(content)
        return _at_once(pieces) if isinstance(content, bytes) else _in_thread(pieces, self._reads)

    @cached_property
    def _reads(self) -> anyio.CapacityLimiter:
        return anyio.CapacityLimiter(_READS)


_Handle = transport.Handle[_Connection]


def _call(build: Callable[Concatenate[str, P], Call[T]]) -> Callable[Concatenate[_Handle, P], Awaitable[T]]:
    @transport.shaped(build, in_place_of=1)
    async def method(self: _Handle, /, *args: P.args, **options: P.kwargs) -> T:
        return await self._connection.run(build(self._subject, *args, **options))

    return method


def _stream(
    build: Callable[Concatenate[str, P], StreamCall[T]],
) -> Callable[Concatenate[_Handle, P], Awaitable[AsyncStream[T]]]:
    @transport.shaped(build, in_place_of=1)
    async def method(self: _Handle, /, *args: P.args, **options: P.kwargs) -> AsyncStream[T]:
        return await self._connection.stream(build(self._subject, *args, **options))

    return method


def _start(
    build: Callable[Concatenate[str, P], Call[ExecState]],
) -> Callable[Concatenate[_Handle, P], Awaitable[AsyncExec]]:
    @transport.shaped(build, in_place_of=1)
    async def method(self: _Handle, /, *args: P.args, **options: P.kwargs) -> AsyncExec:
        state = await self._connection.run(build(self._subject, *args, **options))
        return AsyncExec(self._connection, state.exec_id)

    return method


class AsyncExec(_Handle):
    """A long-lived exec. It continues when the handle, or the whole program, is gone."""

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

    async def wait(self, timeout_sec: float | None = None) -> Ending:
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
                found = await self._connection.run_once(call)
            except IsogateError as error:
                await anyio.sleep(attempts.wait_sec(error, until))
                continue
            if found.ending is not None:
                return found.ending
            if left == 0:
                raise TimeoutError(f"exec {self.exec_id} still runs")
            attempts = None
            await anyio.sleep(early_sec(now + left))


class AsyncSandbox(_Handle):
    """The sandbox of one agent. Its first call creates it. The handle owns nothing: the sandbox stays until `end()`.

    Paths are relative to the workspace, or absolute with `scope="sandbox"`.
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


def _of_gateway(build: Callable[P, Call[T]]) -> Callable[Concatenate[AsyncIsogate, P], Awaitable[T]]:
    @transport.shaped(build)
    async def method(self: AsyncIsogate, /, *args: P.args, **options: P.kwargs) -> T:
        return await self._connection.run(build(*args, **options))

    return method


class AsyncIsogate:
    """A gateway, for the tasks of one event loop; see `Isogate` for the parameters.

    `aclose()`, or leaving `async with`, closes its connections and ends no sandbox.
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
        http_transport: httpx.AsyncBaseTransport | None = None,
    ) -> None:
        self.gateway = gateway.find(base_url, key, ca_file, state_dir)
        if http_transport is None:
            http_transport = httpx.AsyncHTTPTransport(**transport.options_of(self.gateway))
        http = httpx.AsyncClient(transport=http_transport, headers=transport.headers_of(self.gateway))
        self._connection = _Connection(http, self.gateway.base_url, retries, longest_wait_sec)

    async def aclose(self) -> None:
        await self._connection.http.aclose()

    async def __aenter__(self) -> AsyncIsogate:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()

    def sandbox(self, agent_id: str = "default") -> AsyncSandbox:
        """A handle of that agent's sandbox; sends nothing."""
        return AsyncSandbox(self._connection, agent_id)

    def exec(self, exec_id: str) -> AsyncExec:
        """A handle of a long-lived exec that was started before; sends nothing."""
        return AsyncExec(self._connection, exec_id)

    execs = _of_gateway(calls.list_execs)
    sandboxes = _of_gateway(calls.list_sandboxes)
    backends = _of_gateway(calls.list_backends)
    health = _of_gateway(calls.health)
    check_ready = _of_gateway(calls.check_ready)
    metrics = _of_gateway(calls.metrics)
    openapi = _of_gateway(calls.openapi)
