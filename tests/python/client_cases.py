"""The client on a real gateway: every case with the synchronous and with the asynchronous client. Each request and answer is
held against docs/openapi.json. Started by suite_test.py."""

import functools
import hashlib
import io
import os
import tarfile
import time
import uuid

import anyio
import anyio.from_thread
import pytest

import isogate
from conftest import BACKEND, CAPABILITIES
from document import LEFT_OUT, OPERATIONS, Checked, CheckedAsync, Witness
from isogate import gateway as places
from isogate import transport
from pages import run_page

WITNESS = Witness()
MIB = 1 << 20


class Blocking:
    """The asynchronous client with the methods of the synchronous one, so that one case serves both."""

    def __init__(self, portal, inner):
        self.portal, self.inner = portal, inner

    def __getattr__(self, name):
        found = getattr(self.inner, name)
        if not callable(found):
            return found

        async def called(*args, **options):
            answer = found(*args, **options)
            return await answer if hasattr(answer, "__await__") else answer

        def call(*args, **options):
            return self.wrapped(self.portal.call(lambda: called(*args, **options)))
        return call

    def wrapped(self, answer):
        known = (isogate.AsyncSandbox, isogate.AsyncExec, isogate.AsyncStream)
        return Blocking(self.portal, answer) if isinstance(answer, known) else answer

    def __iter__(self):
        return self

    def __next__(self):
        try:
            return self.portal.call(self.inner.__anext__)
        except StopAsyncIteration:
            raise StopIteration from None

    def close(self):
        self.portal.call(self.inner.aclose)

    def __enter__(self):
        return self

    def __exit__(self, *error):
        self.close()


@pytest.fixture(scope="module", params=["sync", "asyncio", "trio"])
def gateway(request):
    options = transport.options_of(places.find())
    if request.param == "sync":
        with isogate.Isogate(http_transport=Checked(WITNESS, **options)) as client:
            yield client
        return

    async def made():
        return isogate.AsyncIsogate(http_transport=CheckedAsync(WITNESS, **options))
    with anyio.from_thread.start_blocking_portal(request.param) as portal:
        with Blocking(portal, portal.call(made)) as client:
            yield client


@pytest.fixture(scope="module")
def box(gateway):
    """The sandbox that all cases share: on some backends one takes seconds."""
    box = gateway.sandbox("shared")
    yield box
    box.end(purge=True)


@pytest.fixture
def at(box):
    """A path in the case's own directory."""
    directory = uuid.uuid4().hex
    box.mkdir(directory)
    yield lambda name: f"{directory}/{name}"
    box.remove(directory, recursive=True)


def eventually(holds, seconds=60):
    until = time.monotonic() + seconds
    while not holds():
        if time.monotonic() > until:
            return False
        time.sleep(0.05)
    return True


def running(gateway):
    return next(each.running_execs for each in gateway.sandboxes() if each.agent_id == "shared")


def output_of(events, stream="stdout"):
    return b"".join(each.data for each in events if isinstance(each, isogate.OutputEvent) and each.stream == stream)


def test_a_program_that_fails_is_a_result(box):
    done = box.exec("echo out; echo err >&2; exit 3")
    assert (done.outcome, done.exit_code, done.signal) == ("exited", 3, None)
    assert (done.stdout, done.stderr, done.stdout_raw, done.stdout_bytes) == ("out\n", "err\n", b"out\n", 4)
    assert not done.ok and not done.truncated and len(done.exec_id) == 32
    assert done.backend == BACKEND and done.isolation
    with pytest.raises(isogate.ExecFailed) as failed:
        done.check()
    assert failed.value.result is done
    assert box.exec(["true"]).check().ok


def test_an_exec_has_its_options(box, at):
    box.mkdir(at("in"))
    done = box.exec('pwd; echo "$A"; cat; echo made > new.txt', env={"A": "b c"}, cwd=at("in"), stdin="from stdin\n",
                    timeout_sec=60, artifact_dir=at("in"), max_output_bytes=1000)
    assert done.stdout.endswith(f"/{at('in')}\nb c\nfrom stdin\n")
    assert [(each.path, each.size) for each in done.artifacts] == [(at("in/new.txt"), 5)]
    assert box.exec(["printf", "%s|", "a b", "$X"]).stdout == "a b|$X|"
    assert box.exec("echo one; echo two >&2", merge_stderr=True).stdout == "one\ntwo\n"


def test_output_and_input_are_bytes(box):
    data = bytes(range(256)) * 3
    done = box.exec(["cat"], stdin=data)
    assert done.stdout_raw == data and "\ufffd" in done.stdout
    for text in (b"a\0b", "a\0b"):
        assert box.exec(["cat"], stdin=text).stdout_raw == b"a\0b"
    assert box.exec("head -c 100000 /dev/zero", max_output_bytes=10).truncated


def test_a_program_that_takes_too_long_is_killed(box):
    done = box.exec(["sleep", "60"], timeout_sec=0.3)
    assert (done.outcome, done.exit_code, done.signal) == ("timed_out", 124, "SIGKILL")


def test_an_unknown_option_is_an_error_before_anything_is_sent(box):
    with pytest.raises(TypeError, match="timeout"):
        box.exec("true", timeout=3)


def test_a_refusal_is_an_error_of_its_codes_class(box):
    with pytest.raises(isogate.FileNotFound) as missing:
        box.read_file("not/there")
    error = missing.value
    assert (error.status, error.code, error.retryable) == (404, "file_not_found", False)
    assert error.request_id and error.request_id in str(error) and isinstance(error, isogate.ApiError)
    with pytest.raises(isogate.InvalidRequest):
        box.exec("a\0b")
    with pytest.raises(isogate.InvalidRequest):
        box.exec("echo \ud800")
    with pytest.raises(isogate.FileNotFound, match="cannot read `not/there`: file not found"):
        box.file_size("not/there")


def test_an_id_reaches_nothing_else(gateway, box):
    box.write_file("kept", "kept")
    for name in ("..", ".", "../sandboxes/shared"):
        with pytest.raises((isogate.InvalidRequest, isogate.NotFound)):
            gateway.sandbox(name).end(purge=True)
        with pytest.raises((isogate.InvalidRequest, isogate.ExecNotFound, isogate.NotFound)):
            gateway.exec(f"{name}?purge=true").kill()
    assert box.read_text("kept") == "kept"


def test_a_wrong_key_is_refused():
    with isogate.Isogate(key="wrong") as other, pytest.raises(isogate.Unauthenticated):
        other.sandboxes()


def test_output_streams_while_the_program_runs(box):
    with box.exec_stream('echo ready; read -r line < /dev/null; echo err >&2; exit 4', lines=True) as events:
        found = list(events)
    assert isinstance(found[0], isogate.StartEvent) and found[0].backend == BACKEND
    assert output_of(found) == b"ready" and output_of(found, "stderr") == b"err"
    assert isinstance(found[-1], isogate.ExitEvent) and found[-1].ending.exit_code == 4


def test_closing_a_stream_kills_its_program(gateway, box):
    with box.exec_stream("echo begun; sleep 600", timeout_sec=600) as events:
        next(each for each in events if isinstance(each, isogate.OutputEvent))
        assert running(gateway) == 1
    with pytest.raises(isogate.ContactLost):
        next(events)
    assert eventually(lambda: running(gateway) == 0)


def test_a_long_lived_exec_takes_input_and_keeps_its_output(gateway, box):
    job = box.start(["sh", "-c", "while read -r line; do echo got $line; done; echo end >&2; exit 5"], stdin_open=True)
    assert job.state().running and job.state().stdin_open
    assert job.exec_id in [each.exec_id for each in gateway.execs("shared")]
    with job.output(follow=True) as events:
        job.write_stdin("one\n")
        first = next(each for each in events if isinstance(each, isogate.OutputEvent))
        assert (first.text, first.offset, first.stream) == ("got one\n", 0, "stdout")
    job.write_stdin(b"two\n", close=True)
    ending = job.wait(60)
    assert (ending.outcome, ending.exit_code) == ("exited", 5)
    again = gateway.exec(job.exec_id)
    with again.output(stdout_offset=8, follow=True) as events:
        assert output_of(events) == b"got two\n"
    with again.output() as events:
        found = list(events)
    assert output_of(found) == b"got one\ngot two\n" and output_of(found, "stderr") == b"end\n"
    assert again.state().ending.exit_code == 5
    with pytest.raises(isogate.ExecEnded):
        again.write_stdin("more\n")
    with pytest.raises(isogate.ExecEnded):
        again.signal("TERM")


def test_a_long_lived_exec_is_signaled_and_killed(box):
    job = box.start("trap 'echo caught; exit 6' TERM; echo ready; while :; do sleep 0.05; done")
    with job.output(follow=True) as events:
        next(each for each in events if isinstance(each, isogate.OutputEvent))
        job.signal("TERM")
        assert output_of(events) == b"caught\n"
    assert job.wait(60).exit_code == 6
    other = box.start(["sleep", "600"])
    with pytest.raises(TimeoutError):
        other.wait(0)
    assert other.kill().ending.outcome == "killed"
    assert other.wait().exit_code == 137


def test_a_program_on_a_terminal(box):
    if "pty" not in CAPABILITIES:
        pytest.skip(f"{BACKEND} has no terminals")
    job = box.start(["sh", "-c", "stty size; read -r line; stty size; cat"], pty={"cols": 100, "rows": 30})
    with job.output(follow=True) as events:
        first = next(each for each in events if isinstance(each, isogate.OutputEvent))
        assert first.text == "30 100\r\n"
        job.resize(120, 40)
        job.write_stdin("\n")
        job.close_stdin()
        assert b"40 120" in output_of(events)
    assert job.wait(60).ok


def test_an_exec_that_cannot_start_says_why(gateway, box):
    job = box.start("true", cwd="not/there")
    ending = job.wait(60)
    assert (ending.outcome, ending.exit_code) == ("not_started", None)
    assert ending.error_code and "No such file" in ending.error_message
    with pytest.raises(isogate.ApiError, match="No such file"):
        box.exec("true", cwd="not/there")
    with pytest.raises(isogate.ExecNotFound):
        gateway.exec("0" * 32).state()


def test_files_keep_their_bytes_and_their_modes(box, at):
    data = bytes(range(256)) * 8
    assert box.write_file(at("in/a.bin"), data, mode=0o640) == len(data)
    assert box.read_file(at("in/a.bin")) == data
    assert box.read_file(at("in/a.bin"), offset=5, limit=7) == data[5:12]
    assert box.read_file(at("in/a.bin"), offset=2000) == data[2000:]
    assert box.read_file(at("in/a.bin"), limit=0) == b""
    assert box.file_size(at("in/a.bin")) == len(data)
    found = box.stat(at("in/a.bin"))
    assert (found.type, found.size, found.mode) == ("file", len(data), 0o640)
    box.write_file(at("t.txt"), "één\r\n")
    box.write_file(at("t.txt"), "two\n", append=True, durable=True)
    assert box.read_text(at("t.txt")) == "één\r\ntwo\n"
    with pytest.raises(UnicodeDecodeError):
        box.read_text(at("in/a.bin"))
    with pytest.raises(isogate.AlreadyExists):
        box.write_file(at("t.txt"), b"", exclusive=True)
    with pytest.raises(isogate.FileNotFound):
        box.write_file(at("no/dir/t.txt"), b"", parents=False)
    box.write_file(at("empty"), b"")
    assert box.read_file(at("empty"), limit=10) == box.read_file(at("t.txt"), offset=1000) == b""
    with box.iter_file(at("t.txt"), offset=1000) as pieces:
        assert list(pieces) == []
    with pytest.raises(isogate.IsDirectory):
        box.read_file(at("in"))


def test_a_read_only_file_is_replaced_when_asked(box, at):
    box.write_file(at("r"), "old", mode=0o444)
    with pytest.raises(isogate.PermissionDenied):
        box.write_file(at("r"), "new")
    box.write_file(at("r"), "new", replace=True)
    assert box.read_text(at("r")) == "new"


def test_any_name_is_reached(box, at):
    for name in ["a b", "ü%2F?#&=+", "new\nline", "\udcff\udcfe", "..."]:
        box.write_file(at(name), name.encode(errors="surrogateescape"))
        assert box.read_file(at(name)) == os.fsencode(name)
    names = {each.name for each in box.ls(at("")).entries}
    assert names == {"a b", "ü%2F?#&=+", "new\nline", "\udcff\udcfe", "..."}
    for name in names:
        box.remove(at(name))
    assert box.ls(at("")).entries == ()


def test_no_path_leaves_the_workspace(box):
    for path in ["../../etc/passwd", "a/../../../etc/passwd", "/etc/passwd", "//etc/passwd"]:
        with pytest.raises((isogate.PermissionDenied, isogate.InvalidRequest, isogate.FileNotFound)):
            box.read_file(path)


def test_the_whole_sandbox_is_reached_with_its_scope(box):
    if "scope_sandbox" not in CAPABILITIES:
        with pytest.raises(isogate.Unsupported):
            box.read_file("/etc/passwd", scope="sandbox")
        return
    assert b"root:" in box.read_file("/etc/passwd", scope="sandbox")
    name = f"/tmp/{uuid.uuid4().hex}"
    box.write_file(name, "there", scope="sandbox")
    assert box.exec(["cat", name]).stdout == "there"
    assert box.stat(name, scope="sandbox").size == 5
    box.remove(name, scope="sandbox")


def test_the_tree_is_listed_moved_and_removed(box, at):
    box.mkdir(at("d/e"), mode=0o750)
    with pytest.raises(isogate.AlreadyExists):
        box.mkdir(at("d/e"), exclusive=True)
    box.write_file(at("d/f"), "f")
    found = box.ls(at("d"))
    assert [(each.name, each.type) for each in sorted(found.entries, key=lambda each: each.name)] == [
        ("e", "directory"), ("f", "file")]
    assert not found.truncated and box.ls(at("d"), limit=1).truncated
    assert {each.name for each in box.ls(at(""), recursive=True).entries} == {"d", "d/e", "d/f"}
    box.move(at("d/f"), at("g/h"))
    assert box.read_text(at("g/h")) == "f"
    box.write_file(at("k"), "k")
    with pytest.raises(isogate.AlreadyExists):
        box.move(at("k"), at("g/h"), exclusive=True)
    with pytest.raises(isogate.ApiError):
        box.remove(at("d"))
    box.remove(at("d"), recursive=True)
    with pytest.raises(isogate.FileNotFound):
        box.stat(at("d"))


class Noise(io.RawIOBase):
    """A number of bytes, generated as they are read."""

    piece = hashlib.shake_128(b"noise").digest(65521)

    def __init__(self, size):
        self.left = size

    def readable(self):
        return True

    def readinto(self, buffer):
        taken = min(len(buffer), self.left, len(self.piece))
        buffer[:taken] = self.piece[:taken]
        self.left -= taken
        return taken


def test_a_large_file_streams_both_ways(box, at):
    size = 24 * MIB
    assert box.write_file(at("big"), Noise(size)) == size
    expected, found, count = hashlib.sha256(), hashlib.sha256(), 0
    source = Noise(size)
    while data := source.read(MIB):
        expected.update(data)
    with box.iter_file(at("big")) as pieces:
        for data in pieces:
            found.update(data)
            count += 1
    assert found.digest() == expected.digest() and count > 1
    with box.iter_file(at("big"), offset=size - 3) as pieces:
        assert len(b"".join(pieces)) == 3


def test_what_has_no_size_is_uploaded_whole(box, at):
    read, write = os.pipe()
    with os.fdopen(write, "wb") as end:
        end.write(b"through a pipe")
    with os.fdopen(read, "rb") as source:
        assert box.write_file(at("piped"), source) == 14
    assert box.read_file(at("piped")) == b"through a pipe"
    with open("/proc/version", "rb") as source:
        assert box.write_file(at("version"), source) > 0
    assert box.write_file(at("viewed"), memoryview(b"view")) == 4


def test_an_iterable_is_uploaded_and_its_error_commits_nothing(box, at):
    assert box.write_file(at("pieces"), iter([b"one", b"two"])) == 6

    def broken():
        yield b"half"
        raise OSError("the source is gone")
    with pytest.raises(OSError, match="the source is gone"):
        box.write_file(at("pieces"), broken())
    assert box.read_file(at("pieces")) == b"onetwo"


def test_a_tree_goes_both_ways_as_a_tar(box, at):
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as tar:
        for name, data in {"a.txt": b"a", "sub/b.txt": b"bb"}.items():
            member = tarfile.TarInfo(name)
            member.size = len(data)
            tar.addfile(member, io.BytesIO(data))
        link = tarfile.TarInfo("link")
        link.type, link.linkname = tarfile.SYMTYPE, "a.txt"
        tar.addfile(link)
    packed.seek(0)
    done = box.upload_archive(packed, at("tree"))
    assert (done.files, done.bytes, done.skipped_total) == (2, 3, 1)
    assert (done.skipped[0].path, done.skipped[0].reason) == ("link", "symlink")
    with box.download_archive(at("tree")) as pieces:
        whole = b"".join(pieces)
    with tarfile.open(fileobj=io.BytesIO(whole)) as tar:
        assert tar.extractfile("sub/b.txt").read() == b"bb"
    with pytest.raises(isogate.InvalidRequest) as refused:
        box.upload_archive(whole[:700], at("cut"))
    assert "files" in refused.value.details


def test_changes_are_watched(box, at):
    if "watch" not in CAPABILITIES:
        pytest.skip(f"{BACKEND} does not watch")
    with box.watch(at(""), recursive=True) as events:
        assert next(events) == isogate.WatchReady()
        box.write_file(at("w.txt"), "w")
        change = next(each for each in events if isinstance(each, isogate.Change) and each.path == at("w.txt"))
        assert change.type == "created" and not change.directory
        box.move(at("w.txt"), at("v.txt"))
        change = next(each for each in events if isinstance(each, isogate.Change) and each.type == "renamed")
        assert (change.path, change.renamed_from) == (at("v.txt"), at("w.txt"))
    with pytest.raises(isogate.ContactLost):
        next(events)


def test_a_sandbox_is_created_listed_and_ended(gateway):
    box = gateway.sandbox("brief")
    made = box.create(backend=BACKEND)
    assert (made.agent_id, made.backend, made.state) == ("brief", BACKEND, "active")
    assert "brief" in [each.agent_id for each in gateway.sandboxes()]
    with pytest.raises((isogate.PermissionDenied, isogate.Unsupported)):
        gateway.sandbox("other").create(image="not-admitted:1")
    box.end(purge=True)
    with pytest.raises(isogate.SandboxNotFound):
        box.end()


def test_the_gateway_reports_its_capabilities(gateway):
    assert gateway.health().status == "ok" and gateway.health().version
    gateway.check_ready()
    found = gateway.backends()
    assert found.allow_unisolated and [each.name for each in found.backends] == [BACKEND]
    assert found.chosen.eligible and set(found.chosen.capabilities) == set(CAPABILITIES)
    assert "isogate_" in gateway.metrics()
    assert gateway.openapi()["openapi"].startswith("3.1")


def test_a_task_that_is_cancelled_kills_its_program():
    with isogate.Isogate() as witness:
        box = witness.sandbox("cancelled")

        def running():
            return sum(each.running_execs for each in witness.sandboxes() if each.agent_id == "cancelled")

        async def run_and_cancel():
            async with isogate.AsyncIsogate() as client, anyio.create_task_group() as tasks:
                tasks.start_soon(functools.partial(client.sandbox("cancelled").exec, ["sleep", "600"], timeout_sec=600))
                while running() == 0:
                    await anyio.sleep(0.05)
                tasks.cancel_scope.cancel()
        for library in ("asyncio", "trio"):
            anyio.run(run_and_cancel, backend=library)
            assert eventually(lambda: running() == 0)
        box.end(purge=True)


def test_the_program_of_the_page_prints_what_the_page_says(tmp_path):
    printed, expected = run_page("python.md", tmp_path, "hello.py")
    assert printed.splitlines() == expected


def test_every_operation_of_the_document_is_called_or_left_out_with_a_reason():
    for each, reason in LEFT_OUT.items():
        print(f"left out: {each}: {reason}")
    unseen = {each.id for each in OPERATIONS} - WITNESS.seen
    if "watch" not in CAPABILITIES:
        unseen.discard("watchDirectory")
    if "pty" not in CAPABILITIES:
        unseen.discard("resizeExec")
    assert unseen == {each.id for each in OPERATIONS} & LEFT_OUT.keys()
