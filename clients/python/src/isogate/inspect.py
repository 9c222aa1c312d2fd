"""A sandbox environment of inspect_ai: `sandbox="isogate"` in a task runs each sample in a sandbox of its own.

The gateway and the key are those of the environment (`isogate.gateway.find`). `sandbox=("isogate", "isogate.yaml")`, or
`SandboxEnvironmentSpec("isogate", IsogateConfig(…))`, has further settings: see `IsogateConfig`.
"""

from __future__ import annotations

import posixpath
import uuid
from typing import Any, Literal, overload

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
from .aio import AsyncIsogate, AsyncSandbox
from .answers import Ending, Isolation, OutputEvent, Scope
from .calls import ExecOptions

# The most that the gateway returns of each stream of output.
_MOST_OUTPUT = 16777216
# Stdin above this does not go into the request: a body of JSON has at most 64 MiB.
_MOST_STDIN = 8 << 20
_STDIN_PIECE = 4 << 20
# The longest time that the gateway lets a program run.
_LONGEST_SEC = 86400


class IsogateConfig(BaseModel, frozen=True, extra="forbid"):
    """Settings of a task's sandboxes; what is left out is the gateway's choice."""

    url: str | None = None  #: of the gateway; in place of ISOGATE_URL
    image: str | None = None  #: one that the operator admits
    backend: str | None = None  #: this backend or an error
    min_isolation: Isolation | None = None


@sandboxenv(name="isogate")
class IsogateSandboxEnvironment(SandboxEnvironment):
    """The sandbox of one agent of the gateway. The environment of a sample is ended, and its files removed, with it."""

    def __init__(self, gateway: AsyncIsogate, sandbox: AsyncSandbox, home: str, own_view: bool) -> None:
        """`home`: the path of the workspace as its programs see it. `own_view`: of a file system that is not the host's."""
        super().__init__()
        self._gateway = gateway
        self._sandbox = sandbox
        self._home = home
        self._own_view = own_view

    @classmethod
    async def open(cls, config: IsogateConfig, agent_id: str | None = None) -> IsogateSandboxEnvironment:
        """A sandbox for a new agent, or for the one that is named. `close()` ends it."""
        gateway = AsyncIsogate(config.url)
        sandbox = gateway.sandbox(agent_id or f"inspect-{uuid.uuid4().hex}")
        environment = cls(gateway, sandbox, "", True)
        try:
            made = await sandbox.create(image=config.image, backend=config.backend, min_isolation=config.min_isolation)
            environment._own_view = made.isolation != "none"
            environment._home = (await sandbox.exec(["pwd"], timeout_sec=60)).check().stdout.rstrip("\n")
        except BaseException as error:
            if agent_id is None and not isinstance(error, errors.GatewayUnreachable):
                await environment.close()
            else:
                await gateway.aclose()
            raise
        return environment

    async def close(self) -> None:
        """Ends the sandbox, removes its files and closes the connections."""
        with anyio.CancelScope(shield=True):
            try:
                await self._sandbox.end(purge=True)
            except errors.SandboxNotFound:
                pass
            finally:
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
        """Ends the sandbox of that agent, or all that a run which was killed has left."""
        async with AsyncIsogate() as gateway:
            for each in await gateway.sandboxes():
                if each.agent_id == id or (id is None and each.agent_id.startswith("inspect-")):
                    await gateway.sandbox(each.agent_id).end(purge=True)

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
        limit = SandboxEnvironmentLimits.MAX_EXEC_OUTPUT_SIZE
        options: ExecOptions = {"max_output_bytes": min(limit, _MOST_OUTPUT)}
        # Without a timeout the gateway's own default would hold, which is seconds.
        options["timeout_sec"] = _LONGEST_SEC if timeout is None else min(timeout, _LONGEST_SEC)
        if cwd is not None:
            place, scope = self._place(cwd)
            if scope == "workspace" or self._own_view:
                options["cwd"] = place
            else:  # where the gateway starts programs below the workspace alone
                cmd = ["/bin/sh", "-c", 'cd -- "$0" && exec "$@"', cwd, *cmd]
        if env is not None:
            options["env"] = env
        if user is not None:
            options["user"] = user
        data = input.encode() if isinstance(input, str) else input
        try:
            if data is not None and len(data) > _MOST_STDIN:
                ending, stdout, stderr = await self._exec_fed(cmd, data, options)
            else:
                if data is not None:
                    options["stdin"] = data
                done = await self._sandbox.exec(cmd, **options)
                ending, stdout, stderr = done, done.stdout, done.stderr
        except errors.IsogateError as error:
            raise _of_exec(error, cmd, user) from error
        if ending.outcome == "timed_out":
            raise TimeoutError(f"the command did not end within {timeout} s")
        if ending.outcome == "not_started":
            raise SandboxUnavailableError(ending.error_message)
        if ending.outcome == "unknown":
            raise SandboxUnavailableError("contact with the sandbox was lost; what became of the command is not known")
        if ending.stdout_bytes > limit or ending.stderr_bytes > limit or ending.truncated:
            raise OutputLimitExceededError(SandboxEnvironmentLimits.MAX_EXEC_OUTPUT_SIZE_STR, stdout or stderr)
        # As a shell, which the contract of this method has in mind, says it.
        if ending.exit_code == 126 and "ermission denied" in stderr:
            raise PermissionError(stderr.strip())
        code = 1 if ending.exit_code is None else ending.exit_code
        return ExecResult(code == 0, code, stdout, stderr)

    async def _exec_fed(self, cmd: list[str], data: bytes, options: ExecOptions) -> tuple[Ending, str, str]:
        """Runs a command whose stdin is written piece by piece."""
        if options["timeout_sec"] == _LONGEST_SEC:
            del options["timeout_sec"]  # of a long-lived exec the default is the most that the operator admits
        job = await self._sandbox.start(cmd, stdin_open=True, **options)
        kept = {"stdout": bytearray(), "stderr": bytearray()}

        async def feed() -> None:
            try:
                for at in range(0, len(data), _STDIN_PIECE):
                    await job.write_stdin(data[at : at + _STDIN_PIECE])
                await job.close_stdin()
            except errors.ExecEnded:  # it wants no more
                pass

        try:
            async with anyio.create_task_group() as tasks, await job.output(follow=True) as events:
                tasks.start_soon(feed)
                async for event in events:
                    if isinstance(event, OutputEvent):
                        kept[event.stream] += event.data
            ending = await job.wait()
        except BaseException as error:
            with anyio.CancelScope(shield=True):
                await job.kill()
            while isinstance(error, BaseExceptionGroup):  # of the task group
                error = error.exceptions[0]
            raise error
        return ending, kept["stdout"].decode(errors="replace"), kept["stderr"].decode(errors="replace")

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
        """A path of the contract as the gateway has it: absolute ones outside of the workspace are the sandbox's."""
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


def _of_exec(error: errors.IsogateError, cmd: list[str], user: str | None) -> Exception:
    """What the contract of `exec` has for a call that failed."""
    if isinstance(error, (errors.PermissionDenied, errors.Unsupported)) and user is not None:
        return SandboxUserUnsupportedError(f"{user}: {error}")
    if isinstance(error, errors.PermissionDenied):
        return PermissionError(f"{cmd[0]}: {error}")
    if isinstance(error, (errors.InvalidRequest, errors.FileNotFound, errors.FileTooLarge)):
        return ValueError(str(error))
    return SandboxUnavailableError(str(error))


def _of_file(error: errors.IsogateError, file: str) -> Exception:
    """What the contract of the file calls has for a call that failed."""
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
