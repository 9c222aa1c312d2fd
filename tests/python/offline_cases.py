"""What the client does without a gateway: what it sends again, what an error means, how it handles a broken response. Started
by package_test.py."""

import copy
import gzip
import inspect
import io
import json
import os
import pathlib
import pickle
import socket
import threading
import time

import anyio
import httpx
import pytest

import isogate
from isogate import calls, gateway, streams

URL = "http://127.0.0.1:1"
REFUSED = {"error": {"code": "rate_limited", "message": "too much", "retryable": True, "details": {"a": 1}},
           "request_id": "r1"}
RESULT = {"exec_id": "0" * 32, "outcome": "exited", "exit_code": 0, "signal": None, "stdout": "hi\n", "stderr": "",
          "stdout_encoding": "utf-8", "stderr_encoding": "utf-8", "stdout_bytes": 3, "stderr_bytes": 0, "truncated": False,
          "duration_ms": 1, "cpu_ms": 1, "max_rss_bytes": 0, "artifacts": [], "backend": "b", "isolation": "vm", "new": 1}


@pytest.fixture(autouse=True)
def alone(monkeypatch, tmp_path):
    for name in ("URL", "KEY", "CA_FILE"):
        monkeypatch.delenv(f"ISOGATE_{name}", raising=False)
    monkeypatch.setenv("ISOGATE_STATE_DIR", str(tmp_path))


def unread(answer):
    return httpx.Response(answer.status_code, headers=answer.headers, stream=httpx.ByteStream(answer.content))


class Script(httpx.BaseTransport, httpx.AsyncBaseTransport):
    """Returns, or raises, what it was given, one after another; keeps the requests."""

    def __init__(self, *answers):
        self.answers, self.asked = list(answers), []

    def next(self, request):
        self.asked.append(request)
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return unread(answer)

    def handle_request(self, request):
        request.read()
        return self.next(request)

    async def handle_async_request(self, request):
        await request.aread()
        return self.next(request)


class Pieces(Script):
    """A script that keeps the sizes of the pieces in which requests come, too."""

    def __init__(self, *answers):
        super().__init__(*answers)
        self.sizes = []

    def received(self, request, pieces):
        self.sizes += map(len, pieces)
        return self.next(httpx.Request(request.method, request.url, headers=request.headers, content=b"".join(pieces)))

    def handle_request(self, request):
        return self.received(request, list(request.stream))

    async def handle_async_request(self, request):
        return self.received(request, [each async for each in request.stream])


def refused(status=429, after="0", **error):
    return httpx.Response(status, json={**REFUSED, "error": {**REFUSED["error"], **error}},
                          headers={"Retry-After": after} if after is not None else {})


def sync_exec(script, **options):
    with isogate.Isogate(URL, "k", http_transport=script, **options) as client:
        return client.sandbox("a").exec("x")


def async_exec(script, **options):
    async def run():
        async with isogate.AsyncIsogate(URL, "k", http_transport=script, **options) as client:
            return await client.sandbox("a").exec("x")
    return anyio.run(run)


both = pytest.mark.parametrize("run", [sync_exec, async_exec])


def sync_call(script, call):
    with isogate.Isogate(URL, "k", http_transport=script) as client:
        answer = call(client.sandbox("a"))
        return list(answer) if isinstance(answer, isogate.Stream) else answer


def async_call(script, call):
    async def run():
        with anyio.fail_after(20):
            async with isogate.AsyncIsogate(URL, "k", http_transport=script) as client:
                answer = await call(client.sandbox("a"))
                return [each async for each in answer] if isinstance(answer, isogate.AsyncStream) else answer
    return anyio.run(run)


either = pytest.mark.parametrize("run", [sync_call, async_call])


@both
def test_what_was_refused_unstarted_is_sent_again(run):
    script = Script(refused(), httpx.ConnectError("no"), refused(503, code="draining"), httpx.Response(200, json=RESULT))
    assert run(script).stdout == "hi\n"
    assert len({each.content for each in script.asked}) == 1 and len(script.asked) == 4
    assert script.asked[0].headers["authorization"] == "Bearer k"


@both
def test_no_call_is_sent_again_for_ever(run):
    script = Script(*[refused() for _ in range(9)])
    with pytest.raises(isogate.RateLimited) as error:
        run(script, retries=2)
    assert len(script.asked) == 3
    assert (error.value.retry_after_sec, error.value.details, error.value.request_id) == (0, {"a": 1}, "r1")


@both
@pytest.mark.parametrize("broken", [httpx.ReadError("reset"), httpx.ReadTimeout("late"), httpx.WriteError("pipe"),
                                    httpx.RemoteProtocolError("disconnected without sending a response")])
def test_a_program_that_may_have_run_is_never_run_again(run, broken):
    script = Script(broken)
    with pytest.raises(isogate.ContactLost):
        run(script)
    assert len(script.asked) == 1


@both
@pytest.mark.parametrize("refusal, error", [
    (lambda: refused(502, code="outcome_unknown"), isogate.OutcomeUnknown),
    (lambda: refused(503, code="backend_unavailable", retryable=False), isogate.BackendUnavailable),
    (lambda: refused(503, after=None, code="backend_unavailable"), isogate.BackendUnavailable),
    (lambda: refused(after="3600"), isogate.RateLimited),
    (lambda: refused(409, code="already_attached"), isogate.AlreadyAttached),
    (lambda: refused(418, code="a_new_code"), isogate.ApiError),
    (lambda: httpx.Response(502, text="<html>proxy</html>"), isogate.BadAnswer),
    (lambda: httpx.Response(200, json={"not": "a result"}), isogate.BadAnswer)])
def test_any_other_answer_is_the_last_word(run, refusal, error):
    script = Script(refusal())
    with pytest.raises(error) as raised:
        run(script)
    assert type(raised.value) is error and len(script.asked) == 1


def test_an_unknown_outcome_carries_what_is_known():
    partial = {**RESULT, "outcome": "unknown", "exit_code": None, "stdout": "half"}
    with pytest.raises(isogate.OutcomeUnknown) as error:
        sync_exec(Script(refused(502, code="outcome_unknown", details=partial)))
    assert (error.value.result.outcome, error.value.result.stdout) == ("unknown", "half")


def test_what_was_streamed_is_sent_once():
    script = Script(refused())
    with isogate.Isogate(URL, http_transport=script) as client, pytest.raises(isogate.RateLimited):
        client.sandbox("a").write_file("f", iter([b"1"]))
    assert len(script.asked) == 1


def test_stdin_of_which_part_may_have_arrived_is_sent_once():
    script = Script(refused(503, code="backend_unavailable"))
    with isogate.Isogate(URL, http_transport=script) as client, pytest.raises(isogate.BackendUnavailable):
        client.exec("0" * 32).write_stdin(b"abc")
    assert len(script.asked) == 1


@either
def test_an_archive_of_which_part_may_be_written_is_sent_once(run):
    script = Script(refused(503, code="backend_unavailable", details={"files": 1}))
    with pytest.raises(isogate.BackendUnavailable) as error:
        run(script, lambda box: box.upload_archive(b"tar"))
    assert error.value.details == {"files": 1} and len(script.asked) == 1


@either
def test_an_archive_that_was_refused_before_it_began_is_sent_again(run):
    done = {"files": 1, "directories": 0, "bytes": 1, "skipped": [], "skipped_total": 0}
    script = Script(refused(), refused(503, code="draining", details={}), httpx.Response(200, json=done))
    assert run(script, lambda box: box.upload_archive(b"tar")).files == 1
    assert len({each.content for each in script.asked}) == 1 and len(script.asked) == 3


RUNNING = {"exec_id": "0" * 32, "agent_id": "a", "state": "running", "command": "x", "started_ms": 1, "backend": "b"}
ENDED = {**RUNNING, "state": "ended", "outcome": "exited", "exit_code": 0, "signal": None}


def sync_wait(script, timeout_sec=None):
    with isogate.Isogate(URL, http_transport=script) as client:
        return client.exec("0" * 32).wait(timeout_sec)


def async_wait(script, timeout_sec=None):
    async def run():
        async with isogate.AsyncIsogate(URL, http_transport=script) as client:
            return await client.exec("0" * 32).wait(timeout_sec)
    return anyio.run(run)


waits = pytest.mark.parametrize("wait", [sync_wait, async_wait])


@waits
def test_a_poll_that_returns_early_is_not_repeated_at_once(wait):
    began = time.monotonic()
    assert wait(Script(httpx.Response(200, json=RUNNING), httpx.Response(200, json=ENDED))).exit_code == 0
    assert time.monotonic() - began > 0.9


@waits
def test_a_poll_that_was_refused_is_sent_again_within_the_time_of_the_wait(wait):
    script = Script(refused(503, "1", code="draining"), refused(503, "9", code="draining"))
    with pytest.raises(isogate.Draining):
        wait(script, 8)
    first, second = (float(each.url.params["wait_sec"]) for each in script.asked)
    assert second <= first - 1
    script = Script(*[refused(503, code="draining")] * 3, httpx.Response(200, json=RUNNING), httpx.Response(200, json=ENDED))
    assert wait(script).exit_code == 0


def test_an_upload_that_waits_for_its_file_can_be_cancelled():
    read, write = os.pipe()
    late = threading.Timer(10, os.close, (write,))
    late.start()

    async def run():
        async with isogate.AsyncIsogate(URL, http_transport=Pieces()) as client:
            began = time.monotonic()
            with anyio.move_on_after(0.3) as scope:
                await client.sandbox("a").write_file("f", file)
            took = time.monotonic() - began
            if took < 9:
                late.cancel()
                os.close(write)
            return scope.cancelled_caught, took

    with os.fdopen(read, "rb") as file:
        cancelled, took = anyio.run(run)
    assert cancelled and took < 9


def test_uploads_are_read_in_a_bounded_number_of_threads(monkeypatch):
    monkeypatch.setattr(isogate.aio, "_READS", 2)
    guard, third, inside = threading.Lock(), threading.Event(), []

    def content():
        with guard:
            inside.append(1)
            if len(inside) > 2:
                third.set()
        third.wait(0.5)
        with guard:
            inside.pop()
        yield b"x"

    async def run():
        async with isogate.AsyncIsogate(URL, http_transport=script) as client, anyio.create_task_group() as tasks:
            for _ in range(4):
                tasks.start_soon(client.sandbox("a").write_file, "f", content())

    script = Pieces(*[httpx.Response(200, json={"bytes_written": 1}) for _ in range(4)])
    anyio.run(run)
    assert script.sizes == [1] * 4 and not third.is_set()


def test_stdin_of_which_nothing_arrived_is_sent_again():
    script = Script(httpx.ConnectError("no"), httpx.Response(200, json={}), refused(503), httpx.Response(200, json={}))
    with isogate.Isogate(URL, http_transport=script) as client:
        client.exec("0" * 32).write_stdin(b"abc")
        client.exec("0" * 32).close_stdin()
    assert len(script.asked) == 4


def piped(tmp_path):
    read, write = os.pipe()
    os.write(write, b"content")
    os.close(write)
    return os.fdopen(read, "rb")


def half_read(tmp_path):
    (tmp_path / "half").write_bytes(b"not this: content")
    file = open(tmp_path / "half", "rb")
    file.seek(len("not this: "))
    return file


def packed(tmp_path):
    (tmp_path / "packed").write_bytes(gzip.compress(b"content"))
    return gzip.open(tmp_path / "packed")


def in_memory(tmp_path):
    file = io.BytesIO(b"not this: content")
    file.seek(len("not this: "))
    return file


@either
@pytest.mark.parametrize("source", [piped, half_read, packed, in_memory, lambda path: io.StringIO("content"),
                                    lambda path: bytearray(b"content"), lambda path: memoryview(b"content"),
                                    lambda path: [b"con", bytearray(b"tent")]])
def test_an_upload_is_what_can_be_read_from_where_a_file_stands(run, source, tmp_path):
    script = Script(httpx.Response(200, json={"bytes_written": 7}))
    assert run(script, lambda box: box.write_file("f", source(tmp_path))) == 7
    sent, = script.asked
    assert sent.content == b"content" and sent.headers.get("content-length", "7") == "7"


@either
def test_an_upload_of_nothing_ends(run):
    script = Script(httpx.Response(200, json={"bytes_written": 0}))
    assert run(script, lambda box: box.write_file("f", io.StringIO(""))) == 0


def test_any_bytes_are_stdin():
    for data in (b"\xff", bytearray(b"\xff"), memoryview(b"\xff")):
        body = json.loads(calls.exec("a", "x", stdin=data).request.content)
        assert (body["stdin"], body["stdin_encoding"]) == ("/w==", "base64")
        assert calls.write_exec_stdin("0", data).request.content == b"\xff"
    with pytest.raises(TypeError):
        calls.write_exec_stdin("0", 5)


@pytest.mark.parametrize("data", [b"a\0b", "a\0b", bytearray(b"a\0b")])
def test_stdin_with_a_nul_is_sent_as_base64(data):
    for call in (calls.exec, calls.exec_stream, calls.start):
        body = json.loads(call("a", "x", stdin=data).request.content)
        assert (body["stdin"], body["stdin_encoding"]) == ("YQBi", "base64")
    assert json.loads(calls.exec("a", "x", stdin="ü").request.content)["stdin"] == "ü"


def test_an_option_of_none_is_one_that_is_left_out():
    nothing = dict.fromkeys(isogate.ExecOptions.__annotations__)
    for call in (calls.exec, calls.exec_stream, calls.start):
        assert call("a", "x", **nothing).request == call("a", "x").request
    assert calls.exec_state("0", wait_sec=None).request == calls.exec_state("0").request
    assert calls.read_file("a", "f", offset=None, limit=3).request == calls.read_file("a", "f", offset=0, limit=3).request
    assert calls.write_file("a", "f", b"", parents=None).request == calls.write_file("a", "f", b"").request
    assert calls.make_directory("a", "d", parents=None).request == calls.make_directory("a", "d").request
    assert calls.move("a", "f", "g", parents=None).request == calls.move("a", "f", "g").request
    assert b'"parents":false' in calls.move("a", "f", "g", parents=False).request.content


@either
@pytest.mark.parametrize("content", [None, 5, pathlib.Path("/etc/passwd")])
def test_what_is_no_content_is_refused_before_anything_is_sent(run, content):
    script = Script()
    for call in (lambda box: box.write_file("f", content), lambda box: box.upload_archive(content)):
        with pytest.raises(TypeError, match="give bytes, text, an open file or an iterable"):
            run(script, call)
    assert script.asked == []


@either
def test_large_bytes_are_sent_in_pieces_and_again_after_a_refusal(run):
    data = bytes(range(256)) * 5000
    script = Pieces(refused(), httpx.Response(200, json={"bytes_written": len(data)}))
    assert run(script, lambda box: box.write_file("f", data)) == len(data)
    assert [each.content for each in script.asked] == [data, data]
    assert all(int(each.headers["content-length"]) == len(data) for each in script.asked)
    assert max(script.sizes) <= 1 << 20


@pytest.mark.parametrize("place", [{"offset": -1}, {"limit": -1}, {"offset": -1, "limit": 0}])
def test_a_negative_part_of_a_file_is_refused_before_anything_is_sent(place):
    with pytest.raises(ValueError, match="negative"):
        calls.read_file("a", "f", **place)
    if "limit" not in place:
        with pytest.raises(ValueError, match="negative"):
            calls.iter_file("a", "f", **place)


@either
def test_a_refusal_of_a_head_says_what_and_why(run):
    busy = httpx.Response(429, headers={"X-Request-Id": "r0", "Retry-After": "0"})
    missing = httpx.Response(404, headers={"X-Request-Id": "r1"})
    for call in (lambda box: box.file_size("no\udcff"), lambda box: box.read_file("no\udcff", limit=0)):
        with pytest.raises(isogate.FileNotFound, match=r"cannot read `no\\udcff`: file not found \(status 404\)") as error:
            run(Script(busy, missing), call)
        assert error.value.request_id == "r1"


def test_a_name_that_is_not_utf8_is_sent_only_in_a_url():
    name = "n\udcff"
    for call in (lambda: calls.stat("a", name), lambda: calls.move("a", name, "b"), lambda: calls.move("a", "b", name),
                 lambda: calls.list_directory("a", name), lambda: calls.make_directory("a", name),
                 lambda: calls.exec("a", "x", cwd=name)):
        with pytest.raises(ValueError, match=r"`n\\udcff` is not UTF-8: .* read_file, write_file and remove"):
            call()
    for call in (calls.read_file, calls.file_size, calls.remove):
        assert call("a", name).request.target == "/workspace/files/a/n%FF"
    assert calls.download_archive("a", name).request.target.endswith("path=n%FF")


def test_invalid_text_is_refused_by_the_gateway():
    assert b"\xed\xa0\x80" in calls.exec("a", "\ud800").request.content


@either
@pytest.mark.parametrize("status, sent, found", [(206, b"456789", b"456789"), (200, b"0123456789", b"456789"),
                                                 (200, b"012", b""), (416, b'{"error":{}}', b"")])
def test_a_file_is_read_from_its_offset_whatever_the_answer_holds(run, status, sent, found):
    for call in (lambda box: box.iter_file("f", offset=4), lambda box: box.read_file("f", offset=4, limit=6)):
        answer = run(Script(httpx.Response(status, content=sent)), call)
        assert b"".join(answer) == found if isinstance(answer, list) else answer == found
    decoder = calls.iter_file("a", "f", offset=4).decoder(200)
    assert [each for at in range(8) for each in decoder.feed(b"01234567"[at:at + 1])] == [b"4", b"5", b"6", b"7"]


@either
@pytest.mark.parametrize("event", [{"event": "stdout"}, {"event": "stdout", "data": "a", "encoding": "base64"}, [1], 2,
                                   {"event": "exit"}, {"no": "event"}])
def test_an_event_that_makes_no_sense_is_a_bad_answer(run, event):
    with pytest.raises(isogate.BadAnswer):
        run(Script(httpx.Response(200, content=lines(event))), lambda box: box.exec_stream("x"))
    with pytest.raises(isogate.BadAnswer):
        run(Script(httpx.Response(200, content=b"event: \xff\n\n")), lambda box: box.watch())


def test_an_unknown_isolation_is_none():
    start = {"event": "start", "exec_id": "1", "backend": "b"}
    assert streams.ExecEvents().feed(lines(start)) == [isogate.StartEvent("1", "b", None)]


def test_an_error_can_be_copied_and_sent_to_another_process():
    with pytest.raises(isogate.RateLimited) as refusal:
        sync_exec(Script(refused()), retries=0)
    with pytest.raises(isogate.ExecFailed) as failed:
        sync_exec(Script(httpx.Response(200, json={**RESULT, "exit_code": 3}))).check()
    for error in (refusal.value, failed.value, isogate.ContactLost("gone")):
        error.add_note("of a test")
        for again in (pickle.loads(pickle.dumps(error)), copy.copy(error), copy.deepcopy(error)):
            assert type(again) is type(error) and str(again) == str(error) and vars(again) == vars(error)


@both
def test_a_refused_connection_is_no_lost_contact(run):
    with pytest.raises(isogate.GatewayUnreachable):
        run(None, retries=1)


def test_a_connection_that_dies_in_an_answer_is_lost_contact():
    with socket.create_server(("127.0.0.1", 0)) as server:
        def serve():
            with server.accept()[0] as peer:
                peer.recv(65536)
                peer.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n{")
        thread = threading.Thread(target=serve)
        thread.start()
        with isogate.Isogate(f"http://127.0.0.1:{server.getsockname()[1]}", "k") as client:
            with pytest.raises(isogate.ContactLost):
                client.sandboxes()
        thread.join()


def test_the_client_waits_longer_than_the_program_may_run():
    assert calls.exec("a", "x", timeout_sec=500).request.silence_sec > 500
    assert calls.exec("a", "x").request.silence_sec > 86400
    assert calls.exec_state("0", wait_sec=100).request.silence_sec > 100


def test_the_client_waits_longer_than_the_gateway_does_for_a_sandbox():
    assert calls.exec("a", "x", timeout_sec=500).request.silence_sec == 500 + 600
    assert calls.exec_stream("a", "x", timeout_sec=500).request.silence_sec >= 600
    assert calls.kill_exec("0").request.silence_sec == 120


def lines(*events):
    return b"".join(json.dumps(each).encode() + b"\n" for each in events)


START = {"event": "start", "exec_id": "1", "backend": "b", "isolation": "vm"}
OUT = {"event": "stdout", "data": "/w==", "encoding": "base64"}
EXIT = {"event": "exit", **RESULT}


@pytest.mark.parametrize("size", [1, 7, 10000])
def test_events_come_whole_however_the_bytes_arrive(size):
    data = lines(START, {"event": "ping"}, OUT, {"event": "of the future", "x": 1}, EXIT)
    decoder = streams.ExecEvents()
    found = [event for at in range(0, len(data), size) for event in decoder.feed(data[at:at + size])]
    decoder.end()
    assert [type(each) for each in found] == [isogate.StartEvent, isogate.OutputEvent, isogate.ExitEvent]
    assert found[1].data == b"\xff" and found[2].ending.ok


@pytest.mark.parametrize("data", [lines(START, OUT), lines(START, OUT, EXIT)[:-1], b""])
def test_a_stream_without_its_last_event_is_lost_contact(data):
    script = Script(httpx.Response(200, content=data))
    with isogate.Isogate(URL, http_transport=script) as client, client.sandbox("a").exec_stream("x") as events:
        with pytest.raises(isogate.ContactLost):
            list(events)


def test_a_stream_that_was_closed_before_its_end_is_lost_contact():
    def answers():
        return Script(*[httpx.Response(200, content=lines(START, EXIT)) for _ in range(3)])

    async def asynchronous():
        async with isogate.AsyncIsogate(URL, http_transport=answers()) as client:
            async with await client.sandbox("a").exec_stream("x") as events:
                assert await anext(events) == isogate.StartEvent("1", "b", "vm")
            with pytest.raises(isogate.ContactLost, match="closed"):
                await anext(events)
            async with await client.sandbox("a").exec_stream("x") as unread:
                pass
            with pytest.raises(isogate.ContactLost, match="closed"):
                await anext(unread)
            async with await client.sandbox("a").exec_stream("x") as whole:
                assert len([each async for each in whole]) == 2
            assert [each async for each in whole] == []

    with isogate.Isogate(URL, http_transport=answers()) as client:
        with client.sandbox("a").exec_stream("x") as events:
            assert next(events) == isogate.StartEvent("1", "b", "vm")
        with pytest.raises(isogate.ContactLost, match="closed"):
            next(events)
        with client.sandbox("a").exec_stream("x") as unread:
            pass
        with pytest.raises(isogate.ContactLost, match="closed"):
            next(unread)
        with client.sandbox("a").exec_stream("x") as whole:
            assert len(list(whole)) == 2
        assert list(whole) == []
    anyio.run(asynchronous)


def test_a_watch_without_its_end_is_lost_contact():
    decoder = streams.WatchEvents()
    found = decoder.feed(b'event: ready\ndata: {}\n\n: ping\n\nevent: change\ndata: {"path":"/w==","path_encoding":"base64",'
                         b'"type":"renamed","from":"a","directory":false}\n\nevent: new\ndata: {}\n\n')
    assert found == [isogate.WatchReady(), isogate.Change("\udcff", "renamed", False, "a")]
    with pytest.raises(isogate.ContactLost):
        decoder.end()
    assert decoder.feed(b'event: end\ndata: {"reason":"removed","message":""}\n\n') == [isogate.WatchEnd("removed", "")]
    decoder.end()


def test_the_gateway_and_the_key_are_found_as_the_command_finds_them(monkeypatch, tmp_path):
    (tmp_path / "local.key").write_text("from-file\n")
    found = gateway.find()
    assert (found.unix_path, found.key) == (str(tmp_path / "isogate.sock"), None)
    assert gateway.find("http://localhost:1").key == "from-file"
    monkeypatch.setenv("ISOGATE_KEY", "")
    assert gateway.find("http://localhost:1").key == "from-file"
    assert gateway.find("http://[::1]:1/").key == "from-file"
    assert gateway.find("https://elsewhere.example").key is None
    assert gateway.find("https://elsewhere.example").base_url == "https://elsewhere.example:9090"
    assert gateway.find("unix:/run/x.sock").unix_path == "/run/x.sock" and gateway.find("unix:///run/x.sock").key is None
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(tmp_path / "isogate.sock"))
        server.listen()
        assert gateway.find().unix_path == str(tmp_path / "isogate.sock")
    monkeypatch.setenv("ISOGATE_URL", "http://127.0.0.1:2")
    monkeypatch.setenv("ISOGATE_KEY", "from-environment")
    assert (gateway.find().base_url, gateway.find().key) == ("http://127.0.0.1:2", "from-environment")
    assert "from-environment" not in repr(gateway.find())
    for url in ("ftp://secret@x", "http://", "unix:secret", "http://x/secret", "http://secret@x", "http://x?secret",
                "http://x:secret", "http://[secret"):
        with pytest.raises(ValueError, match="cannot use the url") as refused:
            gateway.find(url)
        assert "secret" not in str(refused.value)
    with pytest.raises(ValueError):
        gateway.find(key="two\nlines")


def test_only_a_state_directory_that_nobody_named_gives_way_to_the_default_url(monkeypatch, tmp_path):
    assert gateway.find(state_dir=str(tmp_path)).unix_path == str(tmp_path / "isogate.sock")
    monkeypatch.delenv("ISOGATE_STATE_DIR")
    monkeypatch.setattr(gateway, "_default_state_dir", lambda: str(tmp_path))
    found = gateway.find()
    assert (found.base_url, found.unix_path, found.key) == ("http://127.0.0.1:9090", None, None)


def test_a_path_reaches_the_gateway_unchanged():
    for path, expected in {"a/b": "a/b", "/etc/x": "%2Fetc/x", "//x": "%2F%2Fx", "../x/./y": "%2E%2E/x/%2E/y", "a//b": "a//b",
                           "a.b": "a.b", "\udcff?#%": "%FF%3F%23%25"}.items():
        target = calls.read_file("alice", path).request.target
        assert target == f"/workspace/files/alice/{expected}"
        assert httpx.URL(URL + target).raw_path.decode() == target


def test_an_id_is_one_segment_of_its_url():
    for name, expected in {"../sandboxes/bob?purge=true": "..%2Fsandboxes%2Fbob%3Fpurge%3Dtrue", "..": "%2E%2E", ".": "%2E",
                           "a.b": "a.b", "#": "%23"}.items():
        found = {call.request.target: rest for call, rest in [
            (calls.exec_state(name), ""), (calls.kill_exec(name), ""), (calls.exec_output(name), "/output"),
            (calls.write_exec_stdin(name, b""), "/stdin"), (calls.signal_exec(name, "TERM"), "/signal"),
            (calls.resize_exec(name, 1, 1), "/resize")]}
        assert found == {f"/execs/{expected}{rest}": rest for rest in found.values()}
        assert calls.end_sandbox(name, purge=True).request.target == f"/sandboxes/{expected}?purge=true"
        assert calls.read_file(name, "f").request.target == f"/workspace/files/{expected}/f"
        assert httpx.URL(f"{URL}/sandboxes/{expected}").raw_path.decode() == f"/sandboxes/{expected}"
    for call in (calls.kill_exec, calls.end_sandbox, lambda name: calls.read_file(name, "f")):
        with pytest.raises(ValueError, match="empty"):
            call("")


def test_both_clients_have_the_same_calls():
    for one, other in [(isogate.Isogate, isogate.AsyncIsogate), (isogate.Sandbox, isogate.AsyncSandbox),
                       (isogate.Exec, isogate.AsyncExec)]:
        names = {name for name in dir(one) if not name.startswith("_")} - {"close"}
        assert names == {name for name in dir(other) if not name.startswith("_")} - {"aclose"}
        for name in names:
            assert inspect.getdoc(getattr(one, name)), f"{one.__name__}.{name} says nothing"


def test_the_limits_of_an_exec_are_those_of_the_document():
    from document import DOCUMENT
    assert set(isogate.Cgroup.__annotations__) == set(DOCUMENT["components"]["schemas"]["Cgroup"]["properties"])


def test_each_code_of_the_document_is_a_class():
    from document import DOCUMENT
    codes = set(DOCUMENT["components"]["schemas"]["ErrorCode"]["enum"])
    assert codes == set(isogate.ApiError._classes)
