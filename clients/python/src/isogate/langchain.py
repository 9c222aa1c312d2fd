"""A backend of deepagents: an agent's files and commands in a sandbox of the gateway.

    from deepagents import create_deep_agent
    from isogate import Isogate
    from isogate.langchain import IsogateSandbox

    with Isogate() as gateway:
        agent = create_deep_agent(model=…, backend=IsogateSandbox(gateway.sandbox("alice")))
"""

from __future__ import annotations

import posixpath
from typing import Mapping

from deepagents.backends.protocol import ExecuteResponse, FileDownloadResponse, FileUploadResponse
from deepagents.backends.sandbox import BaseSandbox

from . import errors
from .answers import Scope
from .client import Sandbox

INVALID_PATH = "invalid_path"  # a code of the protocol
# What a tool's output may have: some of the framework's own tools are scripts whose output is a whole file.
_MOST_OUTPUT = 16777216


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

    @property
    def id(self) -> str:
        return self._sandbox.agent_id

    @property
    def home(self) -> str:
        """The path of the workspace, where commands start, as programs in the sandbox see it."""
        if self._home is None:
            self._home = self._sandbox.exec(["pwd"], timeout_sec=60).check().stdout.rstrip("\n")
        return self._home

    def execute(self, command: str, *, timeout: int | None = None) -> ExecuteResponse:
        """Run a command in the shell. Its stderr is part of the output. `timeout` is in seconds; 0 is the longest."""
        timeout_sec = self._timeout_sec if timeout is None else timeout or 86400
        try:
            done = self._sandbox.exec(
                command, timeout_sec=timeout_sec, max_output_bytes=_MOST_OUTPUT, merge_stderr=True, env=self._env
            )
        except errors.OutcomeUnknown as error:
            return ExecuteResponse(output=f"{error}: the command may have run, look before you repeat it")
        except (errors.InvalidRequest, errors.QuotaExceeded, errors.PermissionDenied, errors.FileTooLarge) as error:
            return ExecuteResponse(output=str(error), exit_code=1)
        output = done.stdout
        if done.outcome == "timed_out":
            output += f"\n[killed after {timeout_sec:g} s]"
        elif done.outcome == "oom_killed":
            output += "\n[killed: out of memory]"
        return ExecuteResponse(output=output, exit_code=done.exit_code, truncated=done.truncated)

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
        except errors.ApiError as error:
            return _code(error)
        return None

    def _download(self, path: str) -> FileDownloadResponse:
        if not posixpath.isabs(path):
            return FileDownloadResponse(path=path, error=INVALID_PATH)
        place, scope = self._place(path)
        try:
            content = self._sandbox.read_file(place, scope=scope)
        except errors.ApiError as error:
            return FileDownloadResponse(path=path, error=_code(error))
        return FileDownloadResponse(path=path, content=content)

    def _place(self, path: str) -> tuple[str, Scope]:
        """An absolute path as the gateway has it."""
        normal = posixpath.normpath(path)
        if normal == self.home or normal.startswith(self.home.rstrip("/") + "/"):
            return posixpath.relpath(normal, self.home), "workspace"
        return path, "sandbox"


def _code(error: errors.ApiError) -> str:
    """A code of the protocol for what an agent can mend, else the message."""
    if isinstance(error, (errors.FileNotFound, errors.PermissionDenied, errors.IsDirectory)):
        return error.code
    if isinstance(error, errors.InvalidRequest):
        return INVALID_PATH
    return str(error)
