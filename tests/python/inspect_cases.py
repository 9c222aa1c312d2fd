"""inspect_ai's own checks of a sandbox environment, unmodified, on isogate.inspect; and a task without a model. Started by
suite_test.py."""

import shutil
import uuid

import pytest
from inspect_ai import Task, eval_async
from inspect_ai.dataset import Sample
from inspect_ai.scorer import includes
from inspect_ai.solver import solver
from inspect_ai.util import sandbox
from inspect_ai.util._sandbox.self_check import *  # noqa: F403

import isogate
from conftest import BACKEND
from isogate.inspect import IsogateConfig, IsogateSandboxEnvironment
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
    """The checks leave files of fixed names in /tmp, which is this machine's on `local`."""
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
    # From here the package is not installed, so that its entry point is not there.
    run = "import sys; import isogate.inspect; from inspect_ai._cli.main import main; sys.argv[0] = 'inspect'; main()"
    printed, expected = run_page("inspect.md", tmp_path, "-c", run, "eval", "hello.py", "--model", "mockllm/model",
                                 "--display", "plain")
    told = {" ".join(line.split()) for line in printed.splitlines()}
    assert {" ".join(line.split()) for line in expected if not line.startswith("total time")} <= told
