"""The calls of the API: what each sends, and how its response is read. No I/O: both clients share this module.

A call that acts on a sandbox takes the agent's id first, one that acts on a long-lived exec the exec's id; the methods of
`Sandbox` and `Exec` are these functions without that parameter.
"""

from __future__ import annotations

import base64
import json
import os
import sys
from dataclasses import dataclass
from typing import Any, AsyncIterable, BinaryIO, Callable, Generic, Iterable, Mapping, Sequence, TypedDict, TypeVar
from typing import Unpack
from urllib.parse import quote, urlencode

from . import answers, streams
from .answers import Isolation, Scope

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)

#: A path of the workspace, or with the scope `sandbox` an absolute one of the sandbox.
Path = str | os.PathLike[str]
#: Bytes, or text, which is sent as UTF-8.
Data = bytes | bytearray | memoryview | str
#: What is sent piece by piece: a file from its position. Only the asynchronous client accepts an AsyncIterable.
Streamed = BinaryIO | Iterable[bytes] | AsyncIterable[bytes]
#: What an upload sends: the whole, or pieces of it.
Content = Data | Streamed

# Silence of the gateway, in seconds, after which the contact counts as lost.
_ANSWER_SEC = 60.0
_FILE_SEC = 600.0  # an engine copies, or a pod is created first
_MARGIN_SEC = 600.0  # beyond an exec's own time: queueing, the opening of a sandbox, and its end
_KILL_SEC = 120.0
_LONGEST_EXEC_SEC = 86400.0  # without timeout_sec the gateway's own default applies, which only it knows
_PING_SEC = 60.0  # a stream is silent for 15 s at most


@dataclass(frozen=True)
class Answer:
    """A complete response, with a status of success."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    def json(self) -> Any:
        return json.loads(self.body)


@dataclass(frozen=True)
class Request:
    """One request of HTTP. `content` that is not bytes can be sent only once.

    `once`: a refusal does not mean that nothing happened, so only one that never reached the gateway is sent again. With a
    `figure` it means that where its details do not have that member.
    """

    method: str
    target: str  #: path and query, encoded
    silence_sec: float
    content: bytes | Streamed | None = None
    headers: Mapping[str, str] | None = None
    once: bool = False
    figure: str | None = None
    attempt: str = ""  #: of a HEAD, for its error: a refusal has no message


@dataclass(frozen=True)
class Call(Generic[T_co]):
    """A request, and the meaning of its response."""

    request: Request
    parse: Callable[[Answer], T_co]
    also: frozenset[int] = frozenset()  #: statuses that are a result, in addition to those of success


@dataclass(frozen=True)
class StreamCall(Generic[T]):
    """A request whose response arrives piece by piece."""

    request: Request
    decoder: Callable[[int], streams.Decoder[T]]  #: for a response of that status
    also: frozenset[int] = frozenset()


class Cgroup(TypedDict, total=False):
    """Limits that bind one exec. What the backend cannot enforce is refused with Unsupported."""

    memory_mb: int  # RAM and swap together, MiB
    cpu_percent: int  # 100 is one CPU
    max_pids: int  # processes and threads


class ExecOptions(TypedDict, total=False):
    """How a program runs; an option that is left out, or None, has the gateway's default."""

    timeout_sec: float | None  # then it is killed, outcome `timed_out`
    max_output_bytes: int | None  # how much of stdout, and of stderr, is returned
    merge_stderr: bool | None  # stderr is part of stdout
    env: Mapping[str, str] | None  # added to the environment
    cwd: Path | None  # relative to the workspace; absolute if the sandbox has its own view
    user: str | None  # a name or number that the configuration admits
    stdin: Data | None  # what the program reads; left out, nothing
    cgroup: Cgroup | None
    artifact_dir: str | None  # files that appear below it are named in `artifacts`
    backend: str | None  # this backend or an error
    min_isolation: Isolation | None


class Pty(TypedDict, total=False):
    """The size of a terminal, in characters."""

    cols: int
    rows: int


# --- programs


def exec(agent_id: str, command: str | Sequence[str], **options: Unpack[ExecOptions]) -> Call[answers.ExecResult]:
    """Run a program to its end. A string is a line for the shell, a sequence a program and its arguments.

    Options: see ExecOptions. A program that fails is no error: look at `ok`, or call `check()`. Raises OutcomeUnknown or
    ContactLost when nobody can say what became of it; it is never run a second time.
    """
    body = _exec_body(agent_id, command, options)
    timeout_sec = body.get("timeout_sec", _LONGEST_EXEC_SEC)
    return Call(_post("/exec", body, timeout_sec + _MARGIN_SEC), lambda answer: answers.ExecResult.of(answer.json()))


def exec_stream(
    agent_id: str, command: str | Sequence[str], *, lines: bool = False, **options: Unpack[ExecOptions]
) -> StreamCall[answers.ExecEvent]:
    """Run a program and iterate over its events: StartEvent, OutputEvent…, ExitEvent.

    With `lines` each OutputEvent is one line, without its newline. A slow reader slows the program down. Closing the
    stream kills the program. ContactLost when the stream ends without an ExitEvent.
    """
    body = _exec_body(agent_id, command, options)
    if lines:
        body["lines"] = True
    return StreamCall(_post("/exec-stream", body, _PING_SEC + _MARGIN_SEC), lambda status: streams.ExecEvents())


def start(
    agent_id: str,
    command: str | Sequence[str],
    *,
    stdin_open: bool = False,
    pty: Pty | None = None,
    **options: Unpack[ExecOptions],
) -> Call[answers.ExecState]:
    """Start a long-lived exec, which continues without its client.

    `stdin_open` keeps stdin open behind `stdin`. With `pty` (`{}` is 80 by 24) it runs on a terminal. `timeout_sec` is by
    default, and at most, the gateway's `exec.max_background_sec`. Of each stream the last `max_output_bytes` are kept,
    and older ones on disk, up to the gateway's `exec.spool_bytes`.
    """
    body = _exec_body(agent_id, command, options)
    body["background"] = True
    if stdin_open:
        body["stdin_open"] = True
    if pty is not None:
        body["pty"] = pty
    return Call(_post("/exec", body, _FILE_SEC), _exec_state)


def list_execs(agent_id: str | None = None) -> Call[tuple[answers.ExecState, ...]]:
    """This tenant's long-lived execs, without artifacts: those that run, and those that ended lately."""
    return Call(
        _get("/execs", {"agent_id": agent_id}),
        lambda answer: tuple(answers.ExecState.of(each) for each in answer.json()["execs"]),
    )


def exec_state(exec_id: str, *, wait_sec: float | None = None) -> Call[answers.ExecState]:
    """Its state. With `wait_sec` the response comes when it has ended, or after that time."""
    request = _get(f"/execs/{_segment(exec_id)}", {"wait_sec": wait_sec or None}, (wait_sec or 0) + _ANSWER_SEC)
    return Call(request, _exec_state)


def kill_exec(exec_id: str) -> Call[answers.ExecState]:
    """Kill it and everything that it started; the response comes when nothing of it is left."""
    return Call(Request("DELETE", f"/execs/{_segment(exec_id)}", _KILL_SEC), _exec_state)


def exec_output(
    exec_id: str, *, stdout_offset: int | None = None, stderr_offset: int | None = None, follow: bool = False
) -> StreamCall[answers.ExecEvent]:
    """Iterate over its output from these offsets on; without them from the oldest byte that is kept.

    With `follow` to its ExitEvent; the program waits for a slow reader meanwhile. Without it the stream ends with the
    output that there is. OutputDropped where an offset is not kept any more.
    """
    query = {"stdout_offset": stdout_offset, "stderr_offset": stderr_offset, "follow": follow or None}
    request = _get(f"/execs/{_segment(exec_id)}/output", query, _PING_SEC)
    return StreamCall(request, lambda status: streams.ExecEvents() if follow else streams.ExecEventsSoFar())


def write_exec_stdin(exec_id: str, data: Data, *, close: bool = False) -> Call[None]:
    """Write to its stdin; the response comes once the program's pipe has all of it. With `close`, close it after that.

    ExecEnded if its stdin is closed, too: `state()` shows whether it still runs. After an error part of it may have
    arrived: it is not sent again, even if the error is retryable.
    """
    target = f"/execs/{_segment(exec_id)}/stdin" + _query({"close": close or None})
    content = as_bytes(data)
    return Call(Request("POST", target, _LONGEST_EXEC_SEC, content, _BYTES, once=content != b""), _nothing)


def close_exec_stdin(exec_id: str) -> Call[None]:
    """Close its stdin. A terminal gets its end-of-file character."""
    return write_exec_stdin(exec_id, b"", close=True)


def signal_exec(exec_id: str, signal: str) -> Call[None]:
    """Send a signal, `TERM` for example, to its process group."""
    return Call(_post(f"/execs/{_segment(exec_id)}/signal", {"signal": signal}), _nothing)


def resize_exec(exec_id: str, cols: int, rows: int) -> Call[None]:
    """Give its terminal another size, in characters."""
    return Call(_post(f"/execs/{_segment(exec_id)}/resize", {"cols": cols, "rows": rows}), _nothing)


# --- files


def read_file(
    agent_id: str,
    path: Path,
    *,
    offset: int | None = None,
    limit: int | None = None,
    scope: Scope = "workspace",
    user: str | None = None,
) -> Call[bytes]:
    """The bytes of a file, from `offset` on, at most `limit`; none where it ends before `offset`.

    `iter_file` is for what is larger than memory.
    """
    request = _download(agent_id, path, offset, limit, scope, user)
    if limit == 0:  # which a range cannot express
        return Call(_head(agent_id, path, scope, user), lambda answer: b"")

    def part(answer: Answer) -> bytes:
        if answer.status == 206:
            return answer.body
        return b"" if answer.status in _PAST_THE_END else answer.body[offset:][:limit]

    return Call(request, part, _PAST_THE_END)


def read_text(
    agent_id: str, path: Path, *, encoding: str = "utf-8", scope: Scope = "workspace", user: str | None = None
) -> Call[str]:
    """The text of a file; UnicodeDecodeError if it is not text. Line ends stay as they are."""
    request = _download(agent_id, path, None, None, scope, user)
    return Call(request, lambda answer: answer.body.decode(encoding))


def iter_file(
    agent_id: str, path: Path, *, offset: int | None = None, scope: Scope = "workspace", user: str | None = None
) -> StreamCall[bytes]:
    """Iterate over the bytes of a file, from `offset` on, as they arrive. ContactLost if the download is cut off."""
    request = _download(agent_id, path, offset, None, scope, user)

    def decoder(status: int) -> streams.Pieces:
        return streams.Pieces({206: 0, 416: sys.maxsize}.get(status, offset or 0))

    return StreamCall(request, decoder, _PAST_THE_END)


def file_size(agent_id: str, path: Path, *, scope: Scope = "workspace", user: str | None = None) -> Call[int | None]:
    """The size of a file, symlinks followed; None if the kernel generates the file on reading."""
    return Call(_head(agent_id, path, scope, user), lambda answer: _number(answer.headers.get("content-length")))


def write_file(
    agent_id: str,
    path: Path,
    content: Content,
    *,
    mode: int | None = None,
    append: bool = False,
    durable: bool = False,
    exclusive: bool = False,
    parents: bool = True,
    replace: bool = False,
    scope: Scope = "workspace",
    user: str | None = None,
) -> Call[int]:
    """Write a file, whole or not at all; the answer is the number of bytes.

    `mode`: permission bits; an existing file keeps its own. `append`: to its end. `durable`: on disk when the answer
    comes. `exclusive`: AlreadyExists when something is there. `parents`: make missing directories. `replace`: a
    read-only file, too. A file object is streamed from where it stands, an iterable as it is; neither is closed. The
    asynchronous client reads them in threads: after a cancellation one read may go on, so do not use them again, and end
    the writer of a pipe. Text is UTF-8.
    """
    query = {
        "mode": None if mode is None else f"{mode:04o}",
        "append": append or None,
        "durable": durable or None,
        "exclusive": exclusive or None,
        "parents": _unless_false(parents),
        "replace": replace or None,
    }
    request = Request("PUT", _file(agent_id, path, scope, user, query), _FILE_SEC, _content(content), _BYTES)
    return Call(request, lambda answer: int(answer.json()["bytes_written"]))


def list_directory(
    agent_id: str,
    path: Path = ".",
    *,
    recursive: bool = False,
    limit: int | None = None,
    scope: Scope = "workspace",
    user: str | None = None,
) -> Call[answers.Listing]:
    """The entries of a directory, at most `limit`; without it the gateway's cap."""
    body = {**_place(agent_id, path, scope, user), **_given(recursive=recursive or None, limit=limit)}
    return Call(_post("/workspace/list", body, _FILE_SEC), lambda answer: answers.Listing.of(answer.json()))


def stat(
    agent_id: str, path: Path, *, scope: Scope = "workspace", user: str | None = None
) -> Call[answers.FileStatus]:
    """Stat a file, directory or symlink; the last component is not followed."""
    request = _post("/workspace/stat", _place(agent_id, path, scope, user), _FILE_SEC)
    return Call(request, lambda answer: answers.FileStatus.of(answer.json()))


def make_directory(
    agent_id: str,
    path: Path,
    *,
    parents: bool = True,
    mode: int | None = None,
    exclusive: bool = False,
    scope: Scope = "workspace",
    user: str | None = None,
) -> Call[None]:
    """Make a directory. An existing one is fine, unless `exclusive`."""
    mode_text = None if mode is None else f"{mode:04o}"
    body = _given(parents=_unless_false(parents), mode=mode_text, exclusive=exclusive or None)
    return Call(_post("/workspace/mkdir", {**_place(agent_id, path, scope, user), **body}, _FILE_SEC), _nothing)


def move(
    agent_id: str,
    path: Path,
    to: Path,
    *,
    exclusive: bool = False,
    parents: bool = True,
    replace: bool = False,
    scope: Scope = "workspace",
    user: str | None = None,
) -> Call[None]:
    """Move or rename, atomically. A file at `to` is replaced, unless `exclusive`; a read-only one only with `replace`."""
    body = _given(
        to=_as_text(to), exclusive=exclusive or None, parents=_unless_false(parents), replace=replace or None
    )
    return Call(_post("/workspace/move", {**_place(agent_id, path, scope, user), **body}, _FILE_SEC), _nothing)


def remove(
    agent_id: str, path: Path, *, recursive: bool = False, scope: Scope = "workspace", user: str | None = None
) -> Call[None]:
    """Remove a file, a symlink itself, or a directory; one that is not empty needs `recursive`."""
    target = _file(agent_id, path, scope, user, {"recursive": recursive or None})
    return Call(Request("DELETE", target, _FILE_SEC), _nothing)


def watch(
    agent_id: str,
    path: Path | None = None,
    *,
    recursive: bool = False,
    scope: Scope = "workspace",
    user: str | None = None,
) -> StreamCall[answers.WatchEvent]:
    """Iterate over the changes below a directory: WatchReady, Change…, WatchEnd.

    List the directory after WatchReady, and again after WatchOverflow, and nothing is missed. ContactLost when the
    stream ends without a WatchEnd.
    """
    query = {"agent_id": agent_id, "path": _text(path), "recursive": recursive or None, **_scoped(scope, user)}
    request = _get("/workspace/watch", query, _PING_SEC + _MARGIN_SEC)
    return StreamCall(request, lambda status: streams.WatchEvents())


def download_archive(
    agent_id: str, path: Path | None = None, *, scope: Scope = "workspace", user: str | None = None
) -> StreamCall[bytes]:
    """Iterate over the bytes of a tar (pax) of a tree, or of one file; without `path` of the whole workspace.

    Symlinks, FIFOs, devices and sockets are left out; the pax record `ISOGATE.skipped` of the last member names them.
    ContactLost where the download is cut off: never take such a tar for whole.
    """
    query = {"agent_id": agent_id, "path": _text(path), **_scoped(scope, user)}
    return StreamCall(_get("/workspace/archive", query, _FILE_SEC), lambda status: streams.Pieces())


def upload_archive(
    agent_id: str,
    content: Content,
    path: Path | None = None,
    *,
    replace: bool = False,
    scope: Scope = "workspace",
    user: str | None = None,
) -> Call[answers.ArchiveResult]:
    """Write the files and directories of an uncompressed tar below `path`; without it below the workspace.

    It is not one transaction: after a failure, `details` of the error says what was written, and nothing is sent again once
    the gateway has begun. `content` is streamed as of `write_file`.
    """
    query = {"agent_id": agent_id, "path": _text(path), "replace": replace or None, **_scoped(scope, user)}
    headers = {"Content-Type": "application/x-tar"}
    target = "/workspace/archive" + _query(query)
    request = Request("PUT", target, _FILE_SEC, _content(content), headers, once=True, figure="files")
    return Call(request, lambda answer: answers.ArchiveResult.of(answer.json()))


# --- sandboxes and the gateway


def create_sandbox(
    agent_id: str, *, image: str | None = None, backend: str | None = None, min_isolation: Isolation | None = None
) -> Call[answers.SandboxInfo]:
    """Create the sandbox before its first use, which any call does by itself; this one may name an image.

    One that exists is answered unchanged; AlreadyExists where it has another image.
    """
    body = _given(agent_id=agent_id, image=image, backend=backend, min_isolation=min_isolation)
    return Call(_post("/sandboxes", body, _FILE_SEC), lambda answer: answers.SandboxInfo.of(answer.json()))


def end_sandbox(agent_id: str, *, purge: bool = False) -> Call[None]:
    """End what runs in it. The workspace stays, unless `purge`. SandboxNotFound if there is none."""
    target = f"/sandboxes/{_segment(agent_id)}" + _query({"purge": purge or None})
    return Call(Request("DELETE", target, _FILE_SEC), _nothing)


def list_sandboxes() -> Call[tuple[answers.SandboxInfo, ...]]:
    """This tenant's sandboxes."""
    return Call(
        _get("/sandboxes", {}),
        lambda answer: tuple(answers.SandboxInfo.of(each) for each in answer.json()["sandboxes"]),
    )


def list_backends() -> Call[answers.Backends]:
    """Each backend, and why it is or is not chosen."""
    return Call(_get("/backends", {}), lambda answer: answers.Backends.of(answer.json()))


def health() -> Call[answers.Health]:
    """The gateway answers; needs no key."""
    return Call(_get("/healthz", {}), lambda answer: answers.Health.of(answer.json()))


def check_ready() -> Call[None]:
    """Returns if calls can be served; raises BackendUnavailable or Draining otherwise. Needs no key."""
    return Call(_get("/readyz", {}), _nothing)


def metrics() -> Call[str]:
    """Counters and histograms in Prometheus' text format."""
    return Call(_get("/metrics", {}), lambda answer: answer.body.decode())


def openapi() -> Call[Mapping[str, Any]]:
    """The OpenAPI document of this gateway."""
    return Call(_get("/openapi.json", {}), _json_object)


# --- helpers

_BYTES = {"Content-Type": "application/octet-stream"}
_PAST_THE_END = frozenset({416})  # of a file, if a range of it was requested


def _nothing(answer: Answer) -> None:
    answer.json()  # which is {}, or a status


def _json_object(answer: Answer) -> Mapping[str, Any]:
    found: Mapping[str, Any] = answer.json()
    return found


def _exec_state(answer: Answer) -> answers.ExecState:
    return answers.ExecState.of(answer.json())


def _number(text: str | None) -> int | None:
    return None if text is None else int(text)


def as_bytes(data: Data) -> bytes:
    if isinstance(data, bytes):
        return data
    return data.encode() if isinstance(data, str) else bytes(memoryview(data))


def _content(content: Content) -> bytes | Streamed:
    if isinstance(content, (str, bytearray, memoryview)):
        return as_bytes(content)
    if not any(hasattr(content, each) for each in ("read", "__iter__", "__aiter__")):
        raise TypeError(f"cannot send a {type(content).__name__}: give bytes, text, an open file or an iterable of bytes")
    return content


def _text(path: Path | None) -> str | None:
    return None if path is None else os.fspath(path)


def _as_text(path: Path) -> str:
    """A path that goes as JSON, which holds nothing but text."""
    text = os.fspath(path)
    try:
        text.encode()
    except UnicodeEncodeError:
        raise ValueError(
            f"the path `{_shown(path)}` is not UTF-8: only calls that send it in a URL take it, as read_file, write_file "
            "and remove do"
        ) from None
    return text


def _shown(path: Path) -> str:
    """For messages: bytes that are not UTF-8 are escaped."""
    return os.fsdecode(path).encode(errors="backslashreplace").decode()


def _unless_false(value: bool | None) -> bool | None:
    """Of an option whose default is true."""
    return None if value or value is None else False


def _given(**members: Any) -> dict[str, Any]:
    return {name: value for name, value in members.items() if value is not None}


def _scoped(scope: Scope, user: str | None) -> dict[str, Any]:
    return _given(scope=None if scope == "workspace" else scope, user=user)


def _place(agent_id: str, path: Path, scope: Scope, user: str | None) -> dict[str, Any]:
    return {"agent_id": agent_id, "path": _as_text(path), **_scoped(scope, user)}


def _exec_body(agent_id: str, command: str | Sequence[str], options: ExecOptions) -> dict[str, Any]:
    unknown = options.keys() - ExecOptions.__annotations__.keys()
    if unknown:
        raise TypeError(f"unknown options of an exec: {', '.join(sorted(unknown))}")
    body = _given(agent_id=agent_id, **options)
    if isinstance(command, str):
        body["command"] = command
    else:
        body["argv"] = list(command)
    if "cwd" in body:
        body["cwd"] = _as_text(body["cwd"])
    if "env" in body:
        body["env"] = dict(body["env"])
    if "stdin" in body:
        body.update(_stdin(body["stdin"]))
    return body


def _stdin(data: Data) -> dict[str, str]:
    """The members of a body for these bytes: its text may not hold NUL."""
    if isinstance(data, str) and "\0" not in data:
        return {"stdin": data}
    data = as_bytes(data)
    try:
        if b"\0" not in data:
            return {"stdin": data.decode()}
    except UnicodeDecodeError:
        pass
    return {"stdin": base64.b64encode(data).decode(), "stdin_encoding": "base64"}


def _query(members: Mapping[str, Any]) -> str:
    def text(value: Any) -> str:
        return str(value).lower() if isinstance(value, bool) else str(value)

    given = {name: text(value) for name, value in members.items() if value is not None}
    return "?" + urlencode(given, quote_via=quote, safe="", errors="surrogateescape") if given else ""


def _get(path: str, query: Mapping[str, Any], silence_sec: float = _ANSWER_SEC) -> Request:
    return Request("GET", path + _query(query), silence_sec)


def _post(path: str, body: Mapping[str, Any], silence_sec: float = _ANSWER_SEC) -> Request:
    # The gateway reports text that has no UTF-8: an InvalidRequest, not an error of Python.
    content = json.dumps(body, ensure_ascii=False, separators=(",", ":")).encode(errors="surrogatepass")
    return Request("POST", path, silence_sec, content, {"Content-Type": "application/json"})


def _encoded(name: str | bytes) -> str:
    """One segment of a URL, which no library may take for `.` or `..`."""
    encoded = quote(name, safe="")
    return encoded if encoded.strip(".") else encoded.replace(".", "%2E")


def _segment(name: str) -> str:
    if not name:
        raise ValueError("the id of a sandbox or an exec is empty")
    return _encoded(name)


def _file(
    agent_id: str, path: Path, scope: Scope, user: str | None, query: Mapping[str, Any] | None = None
) -> str:
    # The gateway decides what a path means: no URL library may shorten `//`, `.` or `..` in it.
    name = os.fsencode(path)
    root = len(name) - len(name.lstrip(b"/"))
    encoded = "%2F" * root + "/".join(_encoded(each) for each in name[root:].split(b"/"))
    return f"/workspace/files/{_segment(agent_id)}/{encoded}" + _query({**_scoped(scope, user), **(query or {})})


def _head(agent_id: str, path: Path, scope: Scope, user: str | None) -> Request:
    return Request("HEAD", _file(agent_id, path, scope, user), _FILE_SEC, attempt=f"read `{_shown(path)}`")


def _download(
    agent_id: str, path: Path, offset: int | None, limit: int | None, scope: Scope, user: str | None
) -> Request:
    # The gateway ignores a range that makes no sense, as HTTP asks for, and sends the whole file.
    for name, value in (("offset", offset), ("limit", limit)):
        if value is not None and value < 0:
            raise ValueError(f"the {name} {value} of a file is negative")
    first = offset or 0
    headers = {}
    if first or limit is not None:
        headers["Range"] = f"bytes={first}-" + ("" if limit is None else str(first + limit - 1))
    return Request("GET", _file(agent_id, path, scope, user), _FILE_SEC, None, headers)
