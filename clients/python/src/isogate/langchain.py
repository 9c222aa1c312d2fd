"""A backend of deepagents: an agent's files and commands in a sandbox of the gateway.

    from deepagents import create_deep_agent
    from isogate import Isogate
    from isogate.langchain import IsogateSandbox

    with Isogate() as gateway:
        agent = create_deep_agent(model=…, backend=IsogateSandbox(gateway.sandbox("alice")))
"""

from __future__ import annotations

import posixpath
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Iterator, Mapping

from deepagents.backends.protocol import ExecuteResponse, FileDownloadResponse, FileUploadResponse, GlobResult, LsResult
from deepagents.backends.sandbox import BaseSandbox

from . import errors
from .answers import Scope
from .client import AdmittedTime, Sandbox
from .streams import Capture

INVALID_PATH = "invalid_path"  # a code of the protocol
# The most output of a tool: some of the framework's own tools are scripts whose output is a whole file.
_MOST_OUTPUT = 16777216

# A script of the framework runs, whose output counts as its result even if it failed.
_of_script: ContextVar[bool] = ContextVar("_of_script", default=False)


class _ScriptFailed(Exception):
    pass


@contextmanager
def _script() -> Iterator[None]:
    token = _of_script.set(True)
    try:
        yield
    finally:
        _of_script.reset(token)


class IsogateSandbox(BaseSandbox):
    """The sandbox of one agent as a backend of deepagents. Any thread may call it. It owns nothing: `Sandbox.end()` ends it.

    Paths are absolute, in the sandbox's own view. Without `scope_sandbox` among the capabilities of the gateway's backend
    (`local`), those below the workspace alone can be uploaded and downloaded.

    `timeout_sec`: of a command for which the agent names none. `env` is added to the environment of all commands.
    """

    def __init__(self, sandbox: Sandbox, *, timeout_sec: float = 1800, env: Mapping[str, str] | None = None) -> None:
        self._sandbox = sandbox
        self._timeout_sec = timeout_sec
        self._env = dict(env or {})
        self._home: str | None = None
        self._admitted = AdmittedTime()

    @property
    def id(self) -> str:
        return self._sandbox.agent_id

    @property
    def home(self) -> str:
        """The path of the workspace, where commands start, as programs in the sandbox see it."""
        if self._home is None:
            self._home = self._sandbox.exec(["pwd"]).check().stdout.rstrip("\n")
        return self._home

    def execute(self, command: str, *, timeout: int | None = None) -> ExecuteResponse:
        """Run a command in the shell. Its stderr is part of the output. `timeout` is in seconds.

        0 is a day. If the agent names no other timeout and the operator admits less, the operator's limit applies.
        """
        timeout_sec = timeout or self._admitted.at_most(self._timeout_sec if timeout is None else 86400)
        try:
            try:
                done = self._executed(command, timeout_sec)
            except errors.InvalidRequest as refused:  # nothing was started
                limit_sec: float = refused.details.get("limit_sec", timeout_sec)
                if timeout or limit_sec >= timeout_sec:
                    raise
                self._admitted.learn(limit_sec)
                done = self._executed(command, limit_sec)
        except (errors.InvalidRequest, errors.QuotaExceeded, errors.PermissionDenied, errors.FileTooLarge) as error:
            done = ExecuteResponse(output=str(error), exit_code=1)
        if _of_script.get() and done.exit_code != 0:
            raise _ScriptFailed(done.output.strip() or f"exit code {done.exit_code}")
        return done

    def ls(self, path: str) -> LsResult:
        """As the framework defines it. A failed listing is an error, not an empty directory."""
        try:
            with _script():
                return super().ls(path)
        except _ScriptFailed as error:
            return LsResult(error=f"Path '{path}': {error}")

    async def als(self, path: str) -> LsResult:
        """See `ls`."""
        try:
            with _script():
                return await super().als(path)
        except _ScriptFailed as error:
            return LsResult(error=f"Path '{path}': {error}")

    def glob(self, pattern: str, path: str | None = None) -> GlobResult:
        """As the framework defines it. A failed search is an error, not an empty result."""
        try:
            with _script():
                return super().glob(pattern, path)
        except _ScriptFailed as error:
            return GlobResult(error=f"Path '{path or '/'}': {error}")

    async def aglob(self, pattern: str, path: str | None = None) -> GlobResult:
        """See `glob`."""
        try:
            with _script():
                return await super().aglob(pattern, path)
        except _ScriptFailed as error:
            return GlobResult(error=f"Path '{path or '/'}': {error}")

    def _executed(self, command: str, timeout_sec: float) -> ExecuteResponse:
        # The gateway keeps little of a stream, however much the program prints. Output beyond the maximum is read, too: the
        # command continues to its end.
        kept = Capture(_MOST_OUTPUT)
        with self._sandbox.exec_stream(command, timeout_sec=timeout_sec, merge_stderr=True, env=self._env) as events:
            for event in events:
                kept.add(event)
        ending, output = kept.ending(), kept.text("stdout")
        if ending.outcome == "timed_out":
            output += f"\n[killed after {timeout_sec:g} s]"
        elif ending.outcome == "oom_killed":
            output += "\n[killed: out of memory]"
        return ExecuteResponse(output=output, exit_code=ending.exit_code, truncated=kept.truncated)

    def upload_files(self, files: list[tuple[str, bytes]]) -> list[FileUploadResponse]:
        """Write files, each whole or not at all; a failure of one does not keep the others from being written."""
        return [FileUploadResponse(path=path, error=self._upload(path, content)) for path, content in files]

    def download_files(self, paths: list[str]) -> list[FileDownloadResponse]:
        """Read files; a failure of one does not keep the others from being read."""
        return [self._download(path) for path in paths]

    def _upload(self, path: str, content: bytes) -> str | None:
        if not posixpath.isabs(path):
            return INVALID_PATH
        place, scope = self._place(path)
        try:
            self._sandbox.write_file(place, content, scope=scope)
        except UnicodeEncodeError:  # no file has such a name
            return INVALID_PATH
        except errors.ApiError as error:
            return _code(error)
        return None

    def _download(self, path: str) -> FileDownloadResponse:
        if not posixpath.isabs(path):
            return FileDownloadResponse(path=path, error=INVALID_PATH)
        place, scope = self._place(path)
        try:
            content = self._sandbox.read_file(place, scope=scope)
        except UnicodeEncodeError:  # no file has such a name
            return FileDownloadResponse(path=path, error=INVALID_PATH)
        except errors.ApiError as error:
            return FileDownloadResponse(path=path, error=_code(error))
        return FileDownloadResponse(path=path, content=content)

    def _place(self, path: str) -> tuple[str, Scope]:
        """An absolute path in the gateway's form."""
        normal = posixpath.normpath(path)
        if normal == self.home or normal.startswith(self.home.rstrip("/") + "/"):
            return posixpath.relpath(normal, self.home), "workspace"
        return path, "sandbox"


def _code(error: errors.ApiError) -> str:
    """A code of the protocol for an error that an agent can correct, else the message."""
    if isinstance(error, (errors.FileNotFound, errors.PermissionDenied, errors.IsDirectory)):
        return error.code
    if isinstance(error, errors.InvalidRequest):
        return INVALID_PATH
    return str(error)
