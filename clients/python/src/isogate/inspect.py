"""A sandbox environment of inspect_ai: `sandbox="isogate"` in a task runs each sample in a sandbox of its own.

The gateway and the key are those of the environment (`isogate.gateway.find`). `sandbox=("isogate", "isogate.yaml")`, or
`SandboxEnvironmentSpec("isogate", IsogateConfig(…))`, has further settings: see `IsogateConfig`.
"""

from __future__ import annotations

import logging
import posixpath
import uuid
from collections import defaultdict
from typing import Any, Awaitable, Callable, Literal, TypeVar, overload

import anyio
import yaml
from inspect_ai.util import (
    ExecResult,
    OutputLimitExceededError,
    SandboxConnection,
    SandboxEnvironment,
    SandboxEnvironmentConfigType,
    SandboxEnvironmentLimits,
    SandboxUnavailableError,
    SandboxUserUnsupportedError,
    sandboxenv,
)
from pydantic import BaseModel

from . import errors
from .aio import AsyncIsogate, AsyncSandbox, AsyncStream
from .answers import ExecEvent, Isolation, Scope
from .calls import ExecOptions
from .client import AdmittedTime
from .streams import Capture

log = logging.getLogger(__name__)
_T = TypeVar("_T")

# Stdin above this does not go into the request: a body of JSON has at most 64 MiB.
_MOST_STDIN = 8 << 20
_STDIN_PIECE = 4 << 20
# The longest time that a gateway lets a program run, unless its operator says otherwise.
_LONGEST_SEC = 86400.0
# An evaluation may send more concurrent calls than a gateway accepts. Calls that it refuses unstarted wait here.
_RETRIES = 60
# For the end of a sandbox; waiting longer for a gateway that does not answer would keep a run from ending.
_END_SEC = 60.0


class IsogateConfig(BaseModel, frozen=True, extra="forbid"):
    """Settings of a task's sandboxes; the gateway chooses what is left out."""

    url: str | None = None  #: of the gateway; in place of ISOGATE_URL
    image: str | None = None  #: one that the operator admits
    backend: str | None = None  #: this backend or an error
    min_isolation: Isolation | None = None
    exec_timeout_sec: float = _LONGEST_SEC  #: of an exec that names none, and the most; less if the operator admits less


@sandboxenv(name="isogate")
class IsogateSandboxEnvironment(SandboxEnvironment):
    """The sandbox of one agent of the gateway. The environment of a sample is ended, and its files removed, with it."""

    def __init__(
        self,
        gateway: AsyncIsogate,
        sandbox: AsyncSandbox,
        home: str,
        own_view: bool,
        exec_timeout_sec: float = _LONGEST_SEC,
    ) -> None:
        """`home`: the path of the workspace as its programs see it. `own_view`: of a file system that is not the host's."""
        super().__init__()
        self._gateway = gateway
        self._sandbox = sandbox
        self._home = home
        self._own_view = own_view
        self._exec_timeout_sec = exec_timeout_sec
        self._limits: defaultdict[str, AdmittedTime] = defaultdict(AdmittedTime)  # by the call

    @classmethod
    async def open(cls, config: IsogateConfig, agent_id: str | None = None) -> IsogateSandboxEnvironment:
        """A sandbox for a new agent, or for the named one. `close()` ends it."""
        gateway = AsyncIsogate(config.url, retries=_RETRIES)
        sandbox = gateway.sandbox(agent_id or f"inspect-{uuid.uuid4().hex}")
        environment = cls(gateway, sandbox, "", True, config.exec_timeout_sec)
        try:
            made = await sandbox.create(image=config.image, backend=config.backend, min_isolation=config.min_isolation)
            environment._own_view = made.isolation != "none"
            found = await sandbox.exec(["pwd"])
            environment._home = found.check().stdout.rstrip("\n")
        except BaseException as error:
            if agent_id is None and not isinstance(error, errors.GatewayUnreachable):
                await environment.close()
            else:
                await gateway.aclose()
            raise
        return environment

    async def close(self) -> None:
        """Ends the sandbox, removes its files and closes the connections.

        A sandbox that cannot be ended is a warning: what ran in it is done. `inspect sandbox cleanup` ends it.
        """
        try:
            with anyio.move_on_after(_END_SEC, shield=True) as scope:
                await _end(self._sandbox)
            if scope.cancelled_caught:
                log.warning("the sandbox of %s is not ended: no answer in %g s", self._sandbox.agent_id, _END_SEC)
        finally:
            with anyio.CancelScope(shield=True):
                await self._gateway.aclose()

    @classmethod
    async def sample_init(
        cls, task_name: str, config: SandboxEnvironmentConfigType | None, metadata: dict[str, str]
    ) -> dict[str, SandboxEnvironment]:
        return {"default": await cls.open(_config(config))}

    @classmethod
    async def sample_cleanup(
        cls,
        task_name: str,
        config: SandboxEnvironmentConfigType | None,
        environments: dict[str, SandboxEnvironment],
        interrupted: bool,
    ) -> None:
        for each in environments.values():
            await each.as_type(IsogateSandboxEnvironment).close()

    @classmethod
    async def cli_cleanup(cls, id: str | None) -> None:
        """Ends the sandbox of that agent, or all that a killed run has left."""
        async with AsyncIsogate() as gateway:
            for each in await gateway.sandboxes():
                if each.agent_id == id or (id is None and each.agent_id.startswith("inspect-")):
                    await _end(gateway.sandbox(each.agent_id))

    @classmethod
    def config_files(cls) -> list[str]:
        return ["isogate.yaml"]

    @classmethod
    def config_deserialize(cls, config: dict[str, Any]) -> BaseModel:
        return IsogateConfig(**config)

    async def exec(
        self,
        cmd: list[str],
        input: str | bytes | None = None,
        cwd: str | None = None,
        env: dict[str, str] | None = None,
        user: str | None = None,
        timeout: int | None = None,
        timeout_retry: bool = True,
        concurrency: bool = True,
    ) -> ExecResult[str]:
        _check_text(*cmd, *(env or {}), *(env or {}).values())
        # Without a timeout the gateway's own default would apply, which is seconds.
        timeout_sec = self._exec_timeout_sec if timeout is None else min(timeout, self._exec_timeout_sec)
        options: ExecOptions = {}
        if cwd is not None:
            place, scope = self._place(cwd)
            if scope == "workspace" or self._own_view:
                options["cwd"] = place
            else:  # if the gateway starts programs only below the workspace
                cmd = ["/bin/sh", "-c", 'cd -- "$0" && exec "$@"', cwd, *cmd]
        if env is not None:
            options["env"] = env
        if user is not None:
            options["user"] = user
        data = input.encode() if isinstance(input, str) else input
        output = Capture(SandboxEnvironmentLimits.MAX_EXEC_OUTPUT_SIZE)
        try:
            if data is not None and len(data) > _MOST_STDIN:
                timeout_sec = await self._exec_fed(cmd, data, timeout_sec, options, output)
            else:
                if data is not None:
                    options["stdin"] = data
                timeout_sec = await self._exec_streamed(cmd, timeout_sec, options, output)
            ending = output.ending()
        except errors.IsogateError as error:
            raise _of_exec(error, cmd, user) from error
        if ending.outcome == "timed_out":
            raise TimeoutError(f"the command did not end within {timeout_sec:g} s")
        stdout, stderr = output.text("stdout"), output.text("stderr")
        # What a shell reports, as the contract of this method expects.
        if ending.exit_code == 126 and "ermission denied" in stderr:
            raise PermissionError(stderr.strip())
        code = 1 if ending.exit_code is None else ending.exit_code
        return ExecResult(code == 0, code, stdout, stderr)

    async def _exec_streamed(self, cmd: list[str], timeout_sec: float, options: ExecOptions, output: Capture) -> float:
        """Runs a command whose output the gateway passes on; it keeps little of that, however much the program prints.

        Returns the command's timeout: `timeout_sec`, or less if the operator admits less.
        """
        events, timeout_sec = await self._admitted(
            "exec_stream", timeout_sec, options, lambda: self._sandbox.exec_stream(cmd, **options)
        )
        async with events:
            await _read(events, output)
        return timeout_sec

    async def _exec_fed(
        self, cmd: list[str], data: bytes, timeout_sec: float, options: ExecOptions, output: Capture
    ) -> float:
        """Runs a command whose stdin is written piece by piece. Returns its timeout, as `_exec_streamed` does."""
        # The program begins with the first line of stdin, when its output is read: until then little of that is kept.
        held = ["/bin/sh", "-c", 'read -r _ && exec "$@"', "sh", *cmd]
        job, timeout_sec = await self._admitted(
            "start", timeout_sec, options, lambda: self._sandbox.start(held, stdin_open=True, **options)
        )

        async def feed() -> None:
            try:
                await job.write_stdin(b"\n")
                for at in range(0, len(data), _STDIN_PIECE):
                    await job.write_stdin(data[at : at + _STDIN_PIECE])
                await job.close_stdin()
            except errors.ExecEnded:
                state = await job.state()
                if state.running and state.stdin_open:  # the gateway lost contact: the rest of the input is missing
                    raise

        try:
            async with anyio.create_task_group() as tasks, await job.output(
                stdout_offset=0, stderr_offset=0, follow=True
            ) as events:
                tasks.start_soon(feed)
                await _read(events, output)
        except BaseException as error:
            with anyio.move_on_after(_END_SEC, shield=True):
                try:
                    await job.kill()
                except errors.IsogateError as kill_error:
                    log.warning("the exec %s is not killed: %s", job.exec_id, kill_error)
            while isinstance(error, BaseExceptionGroup):  # of the task group
                error = error.exceptions[0]
            raise error
        return timeout_sec

    async def _admitted(
        self, call: str, timeout_sec: float, options: ExecOptions, begin: Callable[[], Awaitable[_T]]
    ) -> tuple[_T, float]:
        """Begins a command; returns its timeout, too: `timeout_sec`, or less if the operator admits less for this call."""
        timeout_sec = options["timeout_sec"] = self._limits[call].at_most(timeout_sec)
        try:
            return await begin(), timeout_sec
        except errors.InvalidRequest as refused:  # nothing was started
            limit_sec: float = refused.details.get("limit_sec", timeout_sec)
            if limit_sec >= timeout_sec:
                raise
        options["timeout_sec"] = limit_sec
        self._limits[call].learn(limit_sec)
        return await begin(), limit_sec

    async def write_file(self, file: str, contents: str | bytes) -> None:
        path, scope = self._place(file)
        try:
            await self._sandbox.write_file(path, contents, scope=scope)
        except errors.IsogateError as error:
            raise _of_file(error, file) from error

    @overload
    async def read_file(self, file: str, text: Literal[True] = True) -> str: ...

    @overload
    async def read_file(self, file: str, text: Literal[False]) -> bytes: ...

    async def read_file(self, file: str, text: bool = True) -> str | bytes:
        path, scope = self._place(file)
        limit = SandboxEnvironmentLimits.MAX_READ_FILE_SIZE
        kept = bytearray()
        try:
            async with await self._sandbox.iter_file(path, scope=scope) as pieces:
                async for data in pieces:
                    kept += data
                    if len(kept) > limit:
                        raise OutputLimitExceededError(SandboxEnvironmentLimits.MAX_READ_FILE_SIZE_STR, None)
        except errors.IsogateError as error:
            raise _of_file(error, file) from error
        return kept.decode() if text else bytes(kept)

    async def connection(self, *, user: str | None = None) -> SandboxConnection:
        return SandboxConnection(type="isogate", command=f"isogate shell {self._sandbox.agent_id}")

    def default_polling_interval(self) -> float:
        return 0.2

    def _place(self, path: str) -> tuple[str, Scope]:
        """A path of the contract in the gateway's form: absolute ones outside of the workspace are the sandbox's."""
        _check_text(path)
        if not posixpath.isabs(path):
            return path, "workspace"
        normal = posixpath.normpath(path)
        if normal == self._home or normal.startswith(self._home.rstrip("/") + "/"):
            return posixpath.relpath(normal, self._home), "workspace"
        return path, "sandbox"


def _config(config: SandboxEnvironmentConfigType | None) -> IsogateConfig:
    if config is None:
        return IsogateConfig()
    if isinstance(config, IsogateConfig):
        return config
    if isinstance(config, str):
        with open(config) as file:
            return IsogateConfig(**(yaml.safe_load(file) or {}))
    raise ValueError(f"the sandbox `isogate` takes an IsogateConfig or a file, and not a {type(config).__name__}")


def _check_text(*given: str) -> None:
    """For a NUL, raises what Python's own calls raise: inspect_ai tells the model of that one."""
    if any("\0" in each for each in given):
        raise ValueError("embedded null byte")


async def _end(sandbox: AsyncSandbox) -> None:
    try:
        await sandbox.end(purge=True)
    except errors.SandboxNotFound:
        pass
    except errors.IsogateError as error:
        log.warning("the sandbox of %s is not ended: %s", sandbox.agent_id, error)


async def _read(events: AsyncStream[ExecEvent], output: Capture) -> None:
    async for event in events:
        output.add(event)
        if output.truncated:
            kept = output.text("stdout") or output.text("stderr")
            raise OutputLimitExceededError(SandboxEnvironmentLimits.MAX_EXEC_OUTPUT_SIZE_STR, kept)


def _of_exec(error: errors.IsogateError, cmd: list[str], user: str | None) -> Exception:
    """The error that the contract of `exec` has for a failed call."""
    if isinstance(error, (errors.PermissionDenied, errors.Unsupported)) and user is not None:
        return SandboxUserUnsupportedError(f"{user}: {error}")
    if isinstance(error, errors.PermissionDenied):
        return PermissionError(f"{cmd[0]}: {error}")
    if isinstance(error, (errors.InvalidRequest, errors.FileNotFound, errors.FileTooLarge)):
        return ValueError(str(error))
    return SandboxUnavailableError(str(error))


def _of_file(error: errors.IsogateError, file: str) -> Exception:
    """The error that the contract of the file calls has for a failed call."""
    kinds: list[tuple[type[errors.IsogateError], type[OSError], str]] = [
        (errors.FileNotFound, FileNotFoundError, "no such file or directory"),
        (errors.PermissionDenied, PermissionError, "permission denied"),
        (errors.IsDirectory, IsADirectoryError, "is a directory"),
        (errors.RequestTimeout, TimeoutError, "timed out"),
    ]
    for of_gateway, of_python, text in kinds:
        if isinstance(error, of_gateway):
            return of_python(f"{file}: {text}: {error}")
    return OSError(f"{file}: {error}")
