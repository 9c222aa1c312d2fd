"""The errors of calls. A program that fails is no error of the call: its result shows it."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Callable, ClassVar, Mapping

if TYPE_CHECKING:
    from .answers import ExecResult


class IsogateError(Exception):
    """The base of all errors of this package."""

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[Any, ...], dict[str, Any]]:
        """How it is copied, and sent to another process: not through the constructor, whose parameters differ."""
        return _bare, (type(self), self.args), vars(self)


def _bare(kind: type[IsogateError], args: tuple[Any, ...]) -> IsogateError:
    return kind.__new__(kind, *args)


class GatewayUnreachable(IsogateError):
    """No connection to the gateway. Nothing was sent, so the call has had no effect."""


class ContactLost(IsogateError):
    """The connection broke, or the response did not arrive in time, after the request may have been received.

    What became of the call is not known: look before you repeat it. A stream that ends without its last event is
    this error, too.
    """


class BadAnswer(IsogateError):
    """The response is not from a gateway. Is there an isogate gateway at that address?"""


class ExecFailed(IsogateError):
    """A program did not end with exit code 0. Raised only by `ExecResult.check()`."""

    def __init__(self, result: ExecResult) -> None:
        super().__init__(f"the program ended as {result.outcome}, exit code {result.exit_code}: {result.stderr[-500:]}")
        self.result = result


class ApiError(IsogateError):
    """A refusal by the gateway: its error object. Each code of the API is a subclass; an unknown code is this class."""

    #: The stable code of the API that the class stands for.
    for_code: ClassVar[str] = ""
    _classes: ClassVar[dict[str, type[ApiError]]] = {}

    def __init_subclass__(cls) -> None:
        ApiError._classes[cls.for_code] = cls

    def __init__(
        self,
        *,
        status: int,
        code: str,
        message: str,
        retryable: bool = False,
        details: Mapping[str, Any] | None = None,
        request_id: str = "",
        retry_after_sec: float | None = None,
    ) -> None:
        super().__init__(message)
        self.status = status  #: of HTTP
        self.code = code  #: stable
        self.message = message  #: for people; may change
        self.retryable = retryable  #: the same request may succeed later
        self.details: Mapping[str, Any] = details or {}
        self.request_id = request_id  #: names the line in the gateway's log
        self.retry_after_sec = retry_after_sec

    def __str__(self) -> str:
        return f"{self.message} ({self.code}; request {self.request_id})"


class InvalidRequest(ApiError):
    for_code = "invalid_request"


class Unauthenticated(ApiError):
    for_code = "unauthenticated"


class PermissionDenied(ApiError):
    for_code = "permission_denied"


class FileNotFound(ApiError):
    for_code = "file_not_found"


class SandboxNotFound(ApiError):
    for_code = "sandbox_not_found"


class ExecNotFound(ApiError):
    for_code = "exec_not_found"


class NotFound(ApiError):
    """The gateway has no such path: it may be older than this client."""

    for_code = "not_found"


class MethodNotAllowed(ApiError):
    for_code = "method_not_allowed"


class RequestTimeout(ApiError):
    for_code = "request_timeout"


class IsDirectory(ApiError):
    for_code = "is_directory"


class AlreadyExists(ApiError):
    for_code = "already_exists"


class FileBusy(ApiError):
    for_code = "file_busy"


class ExecEnded(ApiError):
    """The exec has ended; or it takes no input, since its stdin is closed, and may still run: `state()` shows that."""

    for_code = "exec_ended"


class AlreadyAttached(ApiError):
    for_code = "already_attached"


class SandboxLost(ApiError):
    """The workspace itself is gone. After `Sandbox.end()` a new one can begin."""

    for_code = "sandbox_lost"


class OutputDropped(ApiError):
    """The bytes at that offset are not kept any more; `details` has the first offsets that are."""

    for_code = "output_dropped"


class FileTooLarge(ApiError):
    for_code = "file_too_large"


class UnsupportedMediaType(ApiError):
    for_code = "unsupported_media_type"


class RangeNotSatisfiable(ApiError):
    for_code = "range_not_satisfiable"


class MisdirectedRequest(ApiError):
    for_code = "misdirected_request"


class RateLimited(ApiError):
    for_code = "rate_limited"


class Internal(ApiError):
    for_code = "internal"


class Unsupported(ApiError):
    """The backend cannot do that; the message says what."""

    for_code = "unsupported"


class OutcomeUnknown(ApiError):
    """The gateway lost contact after the call may have begun. It is never success."""

    for_code = "outcome_unknown"

    @property
    def result(self) -> ExecResult | None:
        """For an exec, the known part of its result."""
        from .answers import ExecResult

        return ExecResult.of(self.details) if "exec_id" in self.details else None


class PortClosed(ApiError):
    for_code = "port_closed"


class BackendUnavailable(ApiError):
    for_code = "backend_unavailable"


class Draining(ApiError):
    for_code = "draining"


class QuotaExceeded(ApiError):
    for_code = "quota_exceeded"


# For a HEAD, whose refusal has no error object: the most general code of the status.
_CODES_OF_HEAD = {
    400: "invalid_request",
    401: "unauthenticated",
    403: "permission_denied",
    404: "file_not_found",
    409: "is_directory",
    410: "sandbox_lost",
    421: "misdirected_request",
    429: "rate_limited",
    500: "internal",
    501: "unsupported",
    502: "outcome_unknown",
    503: "backend_unavailable",
    507: "quota_exceeded",
}


def of_event(code: str, message: str) -> ApiError:
    """The error of an exec that was refused after its stream had begun, or whose end is not known."""
    return ApiError._classes.get(code, ApiError)(status=200, code=code, message=message)


def refusal(status: int, headers: Mapping[str, str], body: bytes, attempt: str = "") -> IsogateError:
    """The error of a response whose status is no success. `attempt`: of a HEAD, what the call attempted."""
    request_id = headers.get("x-request-id", "")
    after = headers.get("retry-after", "")
    retry_after_sec = float(after) if after.isdecimal() else None
    if attempt and request_id and status in _CODES_OF_HEAD:
        code = _CODES_OF_HEAD[status]
        return ApiError._classes[code](
            status=status,
            code=code,
            message=f"cannot {attempt}: {code.replace('_', ' ')} (status {status})",
            retryable=retry_after_sec is not None,
            request_id=request_id,
            retry_after_sec=retry_after_sec,
        )
    try:
        answer = json.loads(body)
        error = answer["error"]
        code = error["code"]
        return ApiError._classes.get(code, ApiError)(
            status=status,
            code=code,
            message=error.get("message", code),
            retryable=error.get("retryable", False),
            details=error.get("details"),
            request_id=answer.get("request_id", request_id),
            retry_after_sec=retry_after_sec,
        )
    except (ValueError, KeyError, TypeError, AttributeError):
        return BadAnswer(f"status {status} without an error object: is this an isogate gateway?")
