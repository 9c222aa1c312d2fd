"""What both clients do with a request: headers, time limits, what is sent again, what an error means. No I/O."""

from __future__ import annotations

import inspect
import math
import re
import socket
import time
from contextlib import contextmanager
from typing import Any, AsyncIterable, Callable, Generic, Iterable, Iterator, TypeGuard, TypeVar, cast

import httpx

from .calls import Answer, Call, Request, StreamCall, Streamed, as_bytes
from .errors import ApiError, BadAnswer, ContactLost, GatewayUnreachable, IsogateError, refusal
from .gateway import Gateway
from .streams import Decoder

T = TypeVar("T")
H = TypeVar("H", bound=httpx.Client | httpx.AsyncClient)
C = TypeVar("C")

CONNECT_SEC = 10.0
SEND_SEC = 60.0
PIECE = 1 << 18

LIMITS = httpx.Limits(max_connections=None, max_keepalive_connections=20, keepalive_expiry=60)


def _keepalive() -> list[Any]:
    """A peer whose machine is gone is noticed within two minutes, however long a response may take."""
    options: list[Any] = [(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1), (socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)]
    for name, value in (("TCP_KEEPIDLE", 60), ("TCP_KEEPINTVL", 15), ("TCP_KEEPCNT", 4)):
        if hasattr(socket, name):
            options.append((socket.IPPROTO_TCP, getattr(socket, name), value))
    return options


def options_of(gateway: Gateway) -> dict[str, Any]:
    """The arguments of httpx's transports."""
    options: dict[str, Any] = {"limits": LIMITS}
    if gateway.base_url.startswith("https:"):
        options["verify"] = gateway.tls()
    if gateway.unix_path is not None:
        options["uds"] = gateway.unix_path
    else:
        options["socket_options"] = _keepalive()
    return options


def headers_of(gateway: Gateway) -> dict[str, str]:
    headers = {"Accept-Encoding": "identity"}
    if gateway.key is not None:
        headers["Authorization"] = f"Bearer {gateway.key}"
    return headers


def timeout_of(request: Request) -> httpx.Timeout:
    return httpx.Timeout(connect=CONNECT_SEC, write=max(SEND_SEC, request.silence_sec), pool=None, read=request.silence_sec)


def is_piece(content: bytes | Streamed) -> TypeGuard[bytes]:
    """Whether it is sent in one piece."""
    return isinstance(content, bytes) and len(content) <= PIECE


def pieces(content: bytes | Streamed) -> Iterator[bytes]:
    """Of bytes, of a file from its position, or of an iterable.

    Of bytes httpcore copies the rest after each write to the socket. Of a file itself httpx would announce the size that the
    kernel has for it: 0 for a pipe, and the whole for one that is half read.
    """
    if isinstance(content, bytes):
        yield from (content[at : at + PIECE] for at in range(0, len(content), PIECE))
    elif hasattr(content, "read"):
        while data := content.read(PIECE):
            yield as_bytes(data)
    else:
        yield from map(as_bytes, cast(Iterable[bytes], content))


class Attempts:
    """Which failures of one request are tried again, and when.

    Only where nothing can have happened: no connection was made, or the gateway refused the call with 429 or 503 and said
    when to come back. Of a request that is sent `once`, even such a refusal is final, unless it shows that nothing happened.
    What has been streamed from the caller cannot be sent twice, so it is tried once.
    """

    def __init__(self, request: Request, retries: int, longest_wait_sec: float) -> None:
        self._left = retries if request.content is None or isinstance(request.content, bytes) else 0
        self._request = request
        self._longest_wait_sec = longest_wait_sec
        self._pause_sec = 0.1

    def wait_sec(self, error: IsogateError, until: float = math.inf) -> float:
        """How long to wait before the next attempt; raises the error if it is final, or that would come after `until`."""
        wait_sec: float | None = None
        if isinstance(error, GatewayUnreachable):
            wait_sec, self._pause_sec = self._pause_sec, self._pause_sec * 4
        elif isinstance(error, ApiError) and error.status in (429, 503) and error.retryable and self._nothing_began(error):
            wait_sec = error.retry_after_sec
        if wait_sec is None or self._left == 0 or wait_sec > min(self._longest_wait_sec, until - time.monotonic()):
            raise error
        self._left -= 1
        return wait_sec

    def _nothing_began(self, error: ApiError) -> bool:
        once, figure = self._request.once, self._request.figure
        return not once or (figure is not None and figure not in error.details)


def cut_short() -> ContactLost:
    """Of a stream that is read further."""
    return ContactLost("the stream was closed, or failed, before its end")


@contextmanager
def translated() -> Iterator[None]:
    """Errors of httpx as errors of this package."""
    try:
        yield
    except (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout, httpx.UnsupportedProtocol) as error:
        raise GatewayUnreachable(f"cannot reach the gateway: {error or type(error).__name__}") from error
    except httpx.TransportError as error:
        reason = str(error) or type(error).__name__
        raise ContactLost(f"contact with the gateway was lost, and what became of the call is not known: {reason}") from error


def is_answer(call: Call[Any] | StreamCall[Any], response: httpx.Response) -> bool:
    """Whether it is a result of the call; otherwise it is a refusal."""
    return response.is_success or response.status_code in call.also


# What reading unexpected JSON raises.
_NONSENSE = (ValueError, KeyError, TypeError, AttributeError)


def result(call: Call[T], response: httpx.Response, body: bytes) -> T:
    """The result of the call; raises what a refusal means."""
    if not is_answer(call, response):
        raise refusal(response.status_code, response.headers, body, call.request.attempt)
    try:
        return call.parse(Answer(response.status_code, response.headers, body))
    except UnicodeDecodeError:  # of a file that should be text
        raise
    except _NONSENSE as error:
        raise BadAnswer(f"the gateway's response is invalid: {error!r}") from error


def fed(decoder: Decoder[T], data: bytes) -> list[T]:
    try:
        return decoder.feed(data)
    except _NONSENSE as error:
        raise BadAnswer(f"an event of the gateway makes no sense: {error!r}") from error


class Connection(Generic[H]):
    """What the connections of both clients have in common."""

    def __init__(self, http: H, base_url: str, retries: int, longest_wait_sec: float) -> None:
        self.http = http
        self._base_url = base_url
        self._retries = retries
        self._longest_wait_sec = longest_wait_sec

    def attempts(self, request: Request) -> Attempts:
        return Attempts(request, self._retries, self._longest_wait_sec)

    def built(self, request: Request, content: bytes | Iterable[bytes] | AsyncIterable[bytes] | None) -> httpx.Request:
        """For httpx; `content` is that of the request, in the form that the client sends."""
        headers = dict(request.headers or {})
        if isinstance(request.content, bytes):
            headers["Content-Length"] = str(len(request.content))
        return self.http.build_request(
            request.method,
            self._base_url + request.target,
            content=content,
            headers=headers,
            timeout=timeout_of(request),
        )


class Handle(Generic[C]):
    """What the calls about one sandbox, or one exec, have in common."""

    def __init__(self, connection: C, subject: str) -> None:
        self._connection = connection
        self._subject = subject

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._subject!r})"


M = TypeVar("M", bound=Callable[..., Any])


def shaped(build: Callable[..., Any], in_place_of: int = 0) -> Callable[[M], M]:
    """Gives a method the name, the text and the parameters of the call it makes, for help() and editors.

    `self` comes in the place of the call's first `in_place_of` parameters.
    """

    def shape(method: M) -> M:
        own = inspect.Parameter("self", inspect.Parameter.POSITIONAL_ONLY)
        signature = inspect.signature(build)
        others = list(signature.parameters.values())[in_place_of:]
        method.__doc__ = build.__doc__
        method.__name__ = build.__name__
        answer = re.sub(r"^(Stream)?Call\[(.*)\]$", lambda found: found[2], str(signature.return_annotation))
        setattr(method, "__signature__", signature.replace(parameters=[own, *others], return_annotation=answer))
        return method

    return shape
