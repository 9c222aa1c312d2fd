"""What calls return. All values are immutable. Times and sizes carry their unit in the name; sizes without one are bytes."""

from __future__ import annotations

import base64
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any, Literal, Mapping, TypeVar

from .errors import ExecFailed

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

Json = Mapping[str, Any]
V = TypeVar("V", bound="DataclassInstance")

#: `not_started`: a long-lived exec, or a stream that had begun, could not be started.
Outcome = Literal["exited", "signaled", "timed_out", "killed", "oom_killed", "unknown", "not_started"]
#: In this order, from the least.
Isolation = Literal["none", "namespace", "container", "vm"]
Scope = Literal["workspace", "sandbox"]


def decoded(text: str, encoding: str | None) -> bytes:
    """The bytes of a JSON string that is text, or base64 where `encoding` says so."""
    return base64.b64decode(text) if encoding == "base64" else text.encode()


def _name(answer: Json, member: str) -> str:
    """A path, with the bytes that are not UTF-8 as surrogates: os.fsencode() gives the bytes."""
    return decoded(answer[member], answer.get(member + "_encoding")).decode(errors="surrogateescape")


def _made(kind: type[V], answer: Json, **others: Any) -> V:
    """A dataclass whose fields are members of the same name, apart from `others`."""
    members = {each.name: answer[each.name] for each in fields(kind) if each.name not in others}
    return kind(**members, **others)


@dataclass(frozen=True)
class Artifact:
    """A file that appeared below `artifact_dir` during an exec."""

    path: str  #: relative to the workspace
    size: int
    mime_type: str

    @classmethod
    def of(cls, answer: Json) -> Artifact:
        return _made(cls, answer)


@dataclass(frozen=True, kw_only=True)
class Ending:
    """How an exec ended."""

    outcome: Outcome
    exit_code: int | None  #: 128+n for a signal, 124 for a timeout, 137 for out of memory; None where not known
    signal: str | None  #: the name of the one that ended the program
    stdout_bytes: int  #: that the program wrote, kept or not; 0 also if not known, with `unknown`
    stderr_bytes: int
    truncated: bool  #: the cap cut stdout or stderr
    duration_ms: float
    cpu_ms: float
    max_rss_bytes: int  #: 0: not known
    artifacts: tuple[Artifact, ...]
    backend: str
    isolation: Isolation | None  #: None: not known
    left_behind: bool  #: something that the program started could not be killed in time
    reason: str  #: why, if the outcome alone does not show it
    error_code: str  #: of `not_started`, the code of the refusal
    error_message: str

    @property
    def ok(self) -> bool:
        """The program ended by itself with exit code 0."""
        return self.outcome == "exited" and self.exit_code == 0

    @staticmethod
    def members(answer: Json) -> dict[str, Any]:
        error = answer.get("error", {})
        return dict(
            outcome=answer["outcome"],
            exit_code=answer.get("exit_code"),
            signal=answer.get("signal"),
            stdout_bytes=answer.get("stdout_bytes", 0),
            stderr_bytes=answer.get("stderr_bytes", 0),
            truncated=answer.get("truncated", False),
            duration_ms=answer.get("duration_ms", 0),
            cpu_ms=answer.get("cpu_ms", 0),
            max_rss_bytes=answer.get("max_rss_bytes", 0),
            artifacts=tuple(Artifact.of(each) for each in answer.get("artifacts", ())),
            backend=answer["backend"],
            isolation=answer.get("isolation"),
            left_behind=answer.get("left_behind", False),
            reason=answer.get("reason", ""),
            error_code=error.get("code", ""),
            error_message=error.get("message", ""),
        )

    @classmethod
    def of(cls, answer: Json) -> Ending:
        return cls(**cls.members(answer))


@dataclass(frozen=True, kw_only=True)
class ExecResult(Ending):
    """How an exec ended, and its output up to `max_output_bytes` of each stream."""

    exec_id: str
    stdout_raw: bytes
    stderr_raw: bytes

    @property
    def stdout(self) -> str:
        """As UTF-8; other bytes become U+FFFD. `stdout_raw` is exact."""
        return self.stdout_raw.decode(errors="replace")

    @property
    def stderr(self) -> str:
        """As UTF-8; other bytes become U+FFFD. `stderr_raw` is exact."""
        return self.stderr_raw.decode(errors="replace")

    def check(self) -> ExecResult:
        """Itself if `ok`; raises ExecFailed otherwise."""
        if not self.ok:
            raise ExecFailed(self)
        return self

    @classmethod
    def of(cls, answer: Json) -> ExecResult:
        return cls(
            exec_id=answer["exec_id"],
            stdout_raw=decoded(answer["stdout"], answer["stdout_encoding"]),
            stderr_raw=decoded(answer["stderr"], answer["stderr_encoding"]),
            **cls.members(answer),
        )


@dataclass(frozen=True)
class KeptRange:
    """What is kept of a stream of output, in bytes from its beginning; both are equal if nothing is."""

    first_offset: int
    next_offset: int

    @classmethod
    def of(cls, answer: Json | None) -> KeptRange:
        return cls(answer["first_offset"], answer["next_offset"]) if answer else cls(0, 0)


@dataclass(frozen=True, kw_only=True)
class ExecState:
    """The state of a long-lived exec."""

    exec_id: str
    agent_id: str | None  #: None: its sandbox is gone
    command: str  #: short and printable, without what looks like a secret
    backend: str
    isolation: Isolation | None
    started_ms: int  #: since 1970, UTC
    pty: bool
    stdin_open: bool
    stdout: KeptRange
    stderr: KeptRange
    ending: Ending | None  #: None while it runs

    @property
    def running(self) -> bool:
        return self.ending is None

    @classmethod
    def of(cls, answer: Json) -> ExecState:
        return cls(
            exec_id=answer["exec_id"],
            agent_id=answer["agent_id"],
            command=answer["command"],
            backend=answer["backend"],
            isolation=answer.get("isolation"),
            started_ms=answer["started_ms"],
            pty=answer.get("pty", False),
            stdin_open=answer.get("stdin") == "open",
            stdout=KeptRange.of(answer.get("stdout")),
            stderr=KeptRange.of(answer.get("stderr")),
            ending=Ending.of(answer) if answer["state"] == "ended" else None,
        )


@dataclass(frozen=True)
class StartEvent:
    """The program was started."""

    exec_id: str
    backend: str
    isolation: Isolation | None  #: None: not known


@dataclass(frozen=True)
class OutputEvent:
    """A piece of output."""

    stream: Literal["stdout", "stderr"]
    data: bytes
    offset: int | None  #: of its first byte in its stream; only of a long-lived exec
    partial: bool  #: with `lines`, the rest of the line follows

    @property
    def text(self) -> str:
        """As UTF-8; other bytes become U+FFFD."""
        return self.data.decode(errors="replace")


@dataclass(frozen=True)
class ExitEvent:
    """The last event: how the exec ended."""

    ending: Ending


ExecEvent = StartEvent | OutputEvent | ExitEvent


def exec_event(answer: Json) -> ExecEvent | None:
    """None: an event without content (`ping`), or one that this version does not know."""
    kind = answer["event"]
    if kind in ("stdout", "stderr"):
        data = decoded(answer["data"], answer["encoding"])
        return OutputEvent(kind, data, answer.get("offset"), answer.get("partial", False))
    if kind == "start":
        return StartEvent(answer["exec_id"], answer["backend"], answer.get("isolation"))
    return ExitEvent(Ending.of(answer)) if kind == "exit" else None


FileType = Literal["file", "directory", "symlink", "other"]


@dataclass(frozen=True)
class FileStatus:
    """A file, a directory or a symlink."""

    type: FileType
    size: int
    mode: int  #: permission bits
    mtime_ms: int  #: since 1970, UTC

    @classmethod
    def of(cls, answer: Json) -> FileStatus:
        return cls(answer["type"], answer["size"], int(answer["mode"], 8), answer["mtime_ms"])


@dataclass(frozen=True)
class Entry(FileStatus):
    """An entry of a directory."""

    name: str  #: the path relative to the listed directory; bytes that are not UTF-8 are surrogates (os.fsencode)

    @classmethod
    def of(cls, answer: Json) -> Entry:
        status = FileStatus.of(answer)
        return cls(status.type, status.size, status.mode, status.mtime_ms, _name(answer, "name"))


@dataclass(frozen=True)
class Listing:
    """The entries of a directory, itself excluded; a directory comes before what is in it."""

    entries: tuple[Entry, ...]
    truncated: bool  #: there are more

    @classmethod
    def of(cls, answer: Json) -> Listing:
        return cls(tuple(Entry.of(each) for each in answer["entries"]), answer["truncated"])


@dataclass(frozen=True)
class Skipped:
    """A member of an archive that was left out."""

    path: str
    reason: str

    @classmethod
    def of(cls, answer: Json) -> Skipped:
        return cls(_name(answer, "path"), answer["reason"])


@dataclass(frozen=True)
class ArchiveResult:
    """The result of an uploaded archive."""

    files: int
    directories: int
    bytes: int
    skipped: tuple[Skipped, ...]
    skipped_total: int

    @classmethod
    def of(cls, answer: Json) -> ArchiveResult:
        return _made(cls, answer, skipped=tuple(Skipped.of(each) for each in answer["skipped"]))


@dataclass(frozen=True)
class WatchReady:
    """Changes are reported from now on."""


@dataclass(frozen=True)
class WatchOverflow:
    """Changes were lost: list the directory again."""


@dataclass(frozen=True)
class Change:
    """A change below a watched directory."""

    path: str  #: relative to the workspace; with the scope `sandbox` absolute
    type: Literal["created", "written", "removed", "renamed", "attributes"]
    directory: bool
    renamed_from: str | None


@dataclass(frozen=True)
class WatchEnd:
    """The last event: the gateway ends the watch."""

    reason: str
    message: str


WatchEvent = WatchReady | WatchOverflow | Change | WatchEnd


def watch_event(kind: str, data: Json) -> WatchEvent | None:
    """None: an event that this version does not know."""
    if kind == "change":
        came_from = _name(data, "from") if "from" in data else None
        return Change(_name(data, "path"), data["type"], data["directory"], came_from)
    if kind == "end":
        return WatchEnd(data["reason"], data["message"])
    if kind == "ready":
        return WatchReady()
    return WatchOverflow() if kind == "overflow" else None


@dataclass(frozen=True)
class DiskUse:
    """A sandbox's use of its disk; a limit of None is no limit."""

    used_bytes: int
    limit_bytes: int | None
    used_files: int
    limit_files: int | None
    enforcement: Literal["enforced", "advisory"]
    exact: bool

    @classmethod
    def of(cls, answer: Json) -> DiskUse:
        return _made(cls, answer)


@dataclass(frozen=True, kw_only=True)
class SandboxInfo:
    """A sandbox of this tenant."""

    agent_id: str
    sandbox_id: str
    backend: str
    isolation: Isolation
    image: str | None  #: None: its backend's own
    state: Literal["opening", "active", "lost", "ending"]
    created_ms: int  #: since 1970, UTC
    last_used_ms: int
    running_execs: int
    disk: DiskUse | None  #: None: not known

    @classmethod
    def of(cls, answer: Json) -> SandboxInfo:
        disk = answer["disk"]
        return _made(cls, answer, disk=DiskUse.of(disk) if disk else None)


@dataclass(frozen=True, kw_only=True)
class Backend:
    """A backend of the gateway, and why it is or is not chosen."""

    name: str
    plugin: str
    version: str
    verdict: str
    isolation: str  #: of Isolation, or `unknown`
    locality: str
    capabilities: frozenset[str]
    eligible: bool
    chosen: bool
    reason: str
    detail: str
    generation: int
    restarts: int

    @classmethod
    def of(cls, answer: Json) -> Backend:
        return _made(cls, answer, capabilities=frozenset(answer["capabilities"]))


@dataclass(frozen=True)
class Backends:
    """The backends in the operator's order, and the policy that applies to them."""

    backends: tuple[Backend, ...]
    require_remote: bool
    min_isolation: Isolation
    allow_unisolated: bool

    @property
    def chosen(self) -> Backend | None:
        """The one on which a new sandbox would open."""
        return next((each for each in self.backends if each.chosen), None)

    @classmethod
    def of(cls, answer: Json) -> Backends:
        policy = answer["policy"]
        return cls(
            tuple(Backend.of(each) for each in answer["backends"]),
            policy["require_remote"],
            policy["min_isolation"],
            policy["allow_unisolated"],
        )


@dataclass(frozen=True)
class Health:
    status: str
    version: str  #: of the gateway

    @classmethod
    def of(cls, answer: Json) -> Health:
        return cls(answer["status"], answer["version"])
