"""inspect_ai's own checks of a sandbox environment, unmodified, on isogate.inspect; and a task without a model. Started by
suite_test.py."""

import functools
import hashlib
import json
import shutil
import uuid

import anyio
import httpx
import pytest
from inspect_ai import Task, eval_async
from inspect_ai.dataset import Sample
from inspect_ai.scorer import includes
from inspect_ai.solver import solver
from inspect_ai.util import OutputLimitExceededError, SandboxUnavailableError, SandboxUserUnsupportedError, sandbox
from inspect_ai.util._sandbox.limits import override_max_exec_output_size
from inspect_ai.util._sandbox.self_check import *  # noqa: F403

import isogate
import isogate.inspect
from conftest import BACKEND
from isogate.inspect import IsogateConfig, IsogateSandboxEnvironment
from offline_cases import EXIT, RESULT, START, Script, lines, refused, unread
from pages import run_page

pytestmark = pytest.mark.anyio
AGENT = f"inspect-{uuid.uuid4().hex}"

# A check that cannot hold here, and why.
EXPECTED = {
    "test_exec_as_user": "the check adds a user as root, and no sandbox has a root that may",
}


@pytest.fixture(scope="module")
def anyio_backend():
    return "asyncio"


def clean_tmp():
    """The checks leave files with fixed names in /tmp, which is this machine's on `local`."""
    if BACKEND == "local":
        for each in ["test_cwd_absolute", "test_rw_including_directory_absolute",
                     "inspect_ai_test_write_text_file_is_directory", "inspect_ai_test_write_binary_file_is_directory"]:
            shutil.rmtree(f"/tmp/{each}", ignore_errors=True)


@pytest.fixture(scope="module")
async def shared(anyio_backend):
    clean_tmp()
    environment = await IsogateSandboxEnvironment.open(IsogateConfig(), AGENT)
    yield environment
    await environment.close()
    clean_tmp()


@pytest.fixture
def sandbox_env(shared, request):
    if reason := EXPECTED.get(request.node.originalname):
        request.applymarker(pytest.mark.xfail(reason=reason, strict=True))
    return shared


def scripted(*answers, **settings):
    """The environment of a gateway that sends these responses, and the requests that it got."""
    script = Script(*answers)
    gateway = isogate.AsyncIsogate("http://127.0.0.1:1", "k", retries=0, http_transport=script)
    return IsogateSandboxEnvironment(gateway, gateway.sandbox("a"), "/w", True, **settings), script


SANDBOX = {"agent_id": "a", "sandbox_id": "s", "backend": "b", "isolation": "vm", "image": None, "state": "active",
           "created_ms": 1, "last_used_ms": 1, "running_execs": 0, "disk": None}


@pytest.fixture
def answers(monkeypatch):
    """Makes every gateway send these responses; returns the requests."""
    def given(*answers):
        script = Script(*answers)
        made = functools.partial(isogate.AsyncIsogate, http_transport=script)
        monkeypatch.setattr(isogate.inspect, "AsyncIsogate", made)
        return script
    return given


async def test_an_exec_reserves_no_output_and_asks_for_no_more_time_than_admitted():
    done = httpx.Response(200, content=lines(START, EXIT))
    environment, script = scripted(done, done, exec_timeout_sec=60)
    assert (await environment.exec(["x"])).success and (await environment.exec(["x"], timeout=300)).success
    for each in script.asked:
        assert each.url.path == "/exec-stream" and json.loads(each.content) == {
            "agent_id": "a", "argv": ["x"], "timeout_sec": 60}


def too_long(limit_sec):
    return refused(400, after=None, code="invalid_request", retryable=False, details={"limit_sec": limit_sec})


async def test_an_exec_has_the_time_that_the_operator_admits():
    done = httpx.Response(200, content=lines(START, EXIT))
    late = httpx.Response(200, content=lines(START, {**EXIT, "outcome": "timed_out", "exit_code": 124}))
    environment, script = scripted(too_long(3600.0), done, late)
    assert (await environment.exec(["x"])).success
    with pytest.raises(TimeoutError, match="within 3600 s"):
        await environment.exec(["x"], timeout=7200)
    assert [json.loads(each.content)["timeout_sec"] for each in script.asked] == [86400, 3600, 3600]


async def test_a_limit_that_was_raised_since_is_noticed(monkeypatch):
    monkeypatch.setattr(isogate.client, "_LEARNED_SEC", 0)
    done = httpx.Response(200, content=lines(START, EXIT))
    environment, script = scripted(too_long(3600.0), done, done)
    for _ in range(2):
        assert (await environment.exec(["x"])).success
    assert [json.loads(each.content)["timeout_sec"] for each in script.asked] == [86400, 3600, 86400]


async def test_a_timeout_that_no_gateway_admits_is_refused():
    environment, script = scripted(too_long(3600.0))
    with pytest.raises(ValueError):
        await environment.exec(["x"], timeout=-1)
    assert len(script.asked) == 1


@pytest.mark.parametrize("outcome, error, raised", [
    ("unknown", None, SandboxUnavailableError),
    ("not_started", {"code": "permission_denied", "message": "not you"}, SandboxUserUnsupportedError),
    ("not_started", {"code": "invalid_request", "message": "no"}, ValueError),
    ("not_started", {"code": "backend_unavailable", "message": "gone"}, SandboxUnavailableError)])
async def test_a_stream_that_had_begun_fails_as_a_refusal_does(outcome, error, raised):
    last = {**EXIT, "outcome": outcome, "exit_code": None, **({"error": error} if error else {})}
    environment, _ = scripted(httpx.Response(200, content=lines(START, last)))
    with pytest.raises(raised):
        await environment.exec(["x"], user="u")


async def test_a_busy_gateway_is_asked_again(answers):
    script = answers(*[refused() for _ in range(20)], httpx.Response(200, json=SANDBOX),
                     httpx.Response(200, json={**RESULT, "stdout": "/w\n"}))
    environment = await IsogateSandboxEnvironment.open(IsogateConfig())
    assert environment._home == "/w" and len(script.asked) == 22
    assert "timeout_sec" not in json.loads(script.asked[-1].content)  # the gateway's default is always admitted


@pytest.mark.parametrize("given", [None, b"x" * (9 << 20)])
async def test_a_command_that_prints_without_end_is_killed(shared, given):
    with override_max_exec_output_size(1000), pytest.raises(OutputLimitExceededError) as error:
        await shared.exec(["yes"], input=given, timeout=60)
    assert error.value.truncated_output == "y\n" * 500
    assert (await shared.exec(["true"])).success


async def test_a_large_input_reaches_the_command_whole(shared):
    data = bytes(range(256)) * (9 << 12)
    done = await shared.exec(["sh", "-c", "seq 200000; sha256sum; exit 3"], input=data)
    *counted, digest = done.stdout.splitlines()
    assert len(counted) == 200000 and digest.split()[0] == hashlib.sha256(data).hexdigest()
    assert (done.success, done.returncode, done.stderr) == (False, 3, "")


@pytest.mark.parametrize("given", [b"a\0b", "a\0b"])
async def test_an_input_may_hold_a_nul(shared, given):
    assert (await shared.exec(["tr", "\\000", "n"], input=given)).stdout == "anb"


class ClosedInput(httpx.AsyncBaseTransport, httpx.AsyncByteStream):
    """A gateway that refuses the input of an exec, which ends once its state was asked for: `stdin` is what that says."""

    def __init__(self, stdin):
        self.state = {"exec_id": "0", "agent_id": "a", "command": "x", "backend": "b", "started_ms": 1, "state": "running",
                      "stdin": stdin}
        self.asked, self.methods = anyio.Event(), []

    async def handle_async_request(self, request):
        await request.aread()
        self.methods.append(request.method)
        if request.url.path.endswith("/stdin"):
            return unread(refused(409, after=None, code="exec_ended"))
        if request.url.path.endswith("/output"):
            return httpx.Response(200, stream=self)
        if request.method == "GET":
            self.asked.set()
        return unread(httpx.Response(200, json=self.state))

    async def __aiter__(self):
        yield lines(START)
        await self.asked.wait()
        yield lines(EXIT)


@pytest.mark.parametrize("stdin", ["closed", "open"])
async def test_an_input_that_is_refused_although_it_is_open_is_no_success(stdin):
    transport = ClosedInput(stdin)
    gateway = isogate.AsyncIsogate("http://127.0.0.1:1", "k", http_transport=transport)
    environment = IsogateSandboxEnvironment(gateway, gateway.sandbox("a"), "/w", True)
    with anyio.fail_after(20):
        if stdin == "closed":
            assert (await environment.exec(["x"], input=b"x" * (9 << 20))).success and "DELETE" not in transport.methods
        else:
            with pytest.raises(SandboxUnavailableError, match="exec_ended"):
                await environment.exec(["x"], input=b"x" * (9 << 20))
            assert transport.methods[-1] == "DELETE"


class Limited(ClosedInput):
    """One that admits an hour for a long-lived exec, and kills each."""

    def __init__(self):
        super().__init__("closed")
        self.timeouts = []

    async def handle_async_request(self, request):
        if request.url.path == "/exec":
            self.timeouts.append(json.loads(await request.aread())["timeout_sec"])
            if self.timeouts[-1] > 3600:
                return unread(too_long(3600.0))
        return await super().handle_async_request(request)

    async def __aiter__(self):
        yield lines(START, {**EXIT, "outcome": "timed_out", "exit_code": 124})


@pytest.mark.parametrize("settings", [{}, {"exec_timeout_sec": 43200}])
async def test_an_exec_with_a_large_input_has_the_time_that_the_operator_admits(settings):
    transport = Limited()
    gateway = isogate.AsyncIsogate("http://127.0.0.1:1", "k", http_transport=transport)
    environment = IsogateSandboxEnvironment(gateway, gateway.sandbox("a"), "/w", True, **settings)
    for _ in range(2):
        with anyio.fail_after(20), pytest.raises(TimeoutError, match="within 3600 s"):
            await environment.exec(["x"], input=b"x" * (9 << 20))
    assert transport.timeouts == [settings.get("exec_timeout_sec", 86400), 3600, 3600]


class Broken(httpx.AsyncBaseTransport):
    """A gateway that starts an exec, and loses it."""

    async def handle_async_request(self, request):
        await request.aread()
        if request.url.path == "/exec":
            state = {"exec_id": "0", "agent_id": "a", "command": "x", "backend": "b", "started_ms": 1, "state": "running"}
            return unread(httpx.Response(200, json=state))
        if request.method == "DELETE":
            return unread(refused(503, after=None, code="backend_unavailable"))
        if request.url.path.endswith("/output"):
            raise httpx.ReadError("the first failure")
        await anyio.sleep(60)


async def test_a_kill_that_fails_does_not_hide_why():
    gateway = isogate.AsyncIsogate("http://127.0.0.1:1", "k", http_transport=Broken())
    environment = IsogateSandboxEnvironment(gateway, gateway.sandbox("a"), "/w", True)
    with pytest.raises(SandboxUnavailableError, match="the first failure"):
        await environment.exec(["x"], input=b"x" * (9 << 20))


async def test_a_nul_is_what_the_model_is_told_of(shared):
    for call in (shared.exec(["echo", "a\0b"]), shared.exec(["true"], env={"A": "\0"}), shared.exec(["true"], cwd="a\0"),
                 shared.write_file("a\0b", ""), shared.read_file("a\0b")):
        with pytest.raises(ValueError, match="embedded null byte"):
            await call


async def test_a_sandbox_that_cannot_be_ended_is_a_warning(caplog, monkeypatch):
    environment, _ = scripted(refused(500, code="internal", after=None))
    await IsogateSandboxEnvironment.sample_cleanup("task", None, {"default": environment}, False)
    assert "is not ended" in caplog.text
    caplog.clear()
    monkeypatch.setattr(isogate.inspect, "_END_SEC", 0.1)
    gateway = isogate.AsyncIsogate("http://127.0.0.1:1", "k", http_transport=Silent())
    with anyio.fail_after(20):
        await IsogateSandboxEnvironment(gateway, gateway.sandbox("a"), "/w", True).close()
    assert "no answer in 0.1 s" in caplog.text


class Silent(httpx.AsyncBaseTransport):
    async def handle_async_request(self, request):
        await anyio.sleep(60)


async def test_an_environment_that_cannot_be_opened_says_why(answers):
    answers(refused(503, after=None, code="backend_unavailable", message="the first failure"),
            refused(500, after=None, code="internal"))
    with pytest.raises(isogate.BackendUnavailable, match="the first failure"):
        await IsogateSandboxEnvironment.open(IsogateConfig())


async def test_a_cleanup_goes_on_after_a_failure(answers):
    left = [{**SANDBOX, "agent_id": name} for name in ("inspect-1", "inspect-2", "inspect-3", "other")]
    script = answers(httpx.Response(200, json={"sandboxes": left}), refused(404, after=None, code="sandbox_not_found"),
                     refused(500, after=None, code="internal"), httpx.Response(200, json={}))
    await IsogateSandboxEnvironment.cli_cleanup(None)
    assert [each.url.path for each in script.asked[1:]] == [f"/sandboxes/inspect-{each}" for each in (1, 2, 3)]


@solver
def writes_and_runs():
    async def solve(state, generate):
        await sandbox().write_file("hello.sh", "echo hello from $0")
        state.output.completion = (await sandbox().exec(["sh", "hello.sh"])).stdout
        return state
    return solve


async def test_a_task_has_a_sandbox_for_each_sample_and_leaves_none(tmp_path):
    task = Task(dataset=[Sample(input=each, target="hello from hello.sh") for each in "ab"], solver=writes_and_runs(),
                scorer=includes(), sandbox=("isogate", IsogateConfig(backend=BACKEND)))
    log, = await eval_async(task, model="mockllm/model", log_dir=str(tmp_path))
    assert log.status == "success", log.error
    assert log.results.scores[0].metrics["accuracy"].value == 1
    with isogate.Isogate() as gateway:
        assert [each.agent_id for each in gateway.sandboxes() if each.agent_id.startswith("inspect-")] in ([], [AGENT])


def test_the_program_of_the_page_prints_what_the_page_says(tmp_path):
    # The package is not installed here, so its entry point is missing.
    run = "import sys; import isogate.inspect; from inspect_ai._cli.main import main; sys.argv[0] = 'inspect'; main()"
    printed, expected = run_page("inspect.md", tmp_path, "-c", run, "eval", "hello.py", "--model", "mockllm/model",
                                 "--display", "plain")
    told = {" ".join(line.split()) for line in printed.splitlines()}
    assert {" ".join(line.split()) for line in expected if not line.startswith("total time")} <= told
