"""What a program does with E2B's SDK for Python, the newest and the oldest that is served; started by sdk_test.py. Most cases
share one sandbox, each in a directory of its own: on some backends a sandbox takes seconds."""

import asyncio
import datetime
import functools
import hashlib
import http.client
import io
import logging
import os
import re
import threading
import time
import unittest
import urllib.error
import urllib.parse
import urllib.request
import uuid

import e2b
from e2b import AsyncSandbox, CommandExitException, NotFoundException, PtySize, Sandbox, SandboxQuery, TimeoutException
from e2b.exceptions import AuthenticationException, InvalidArgumentException, SandboxException

CAPABILITIES = os.environ["ISOGATE_TEST_CAPABILITIES"].split()
BACKEND = os.environ["ISOGATE_TEST_BACKEND"]
DENIES = os.environ["ISOGATE_TEST_EGRESS"] == "deny"
DOOR = os.environ["E2B_API_URL"]
OLD = not hasattr(e2b, "SandboxNotFoundException")  # it has neither close_stdin nor gzip
NOT_RUNNING = TimeoutException if OLD else e2b.exceptions.SandboxNotRunningException
MARK = uuid.uuid4().hex
MIB = 1 << 20
BIG = 100 * MIB
LOOP = asyncio.new_event_loop()

logging.disable()  # the oldest warns of each refusal


def sha256(data):
    return hashlib.sha256(data).hexdigest()


def eventually(holds, seconds=20):
    until = time.monotonic() + seconds
    while not (found := holds()):
        if time.monotonic() > until:
            return found
        time.sleep(0.05)
    return found


class Noise(io.RawIOBase):
    """A number of bytes that repeat only after a prime number of them, generated on the fly."""

    piece = bytes(hashlib.shake_128(b"noise").digest(65521))

    def __init__(self, size):
        self.size, self.at = size, 0

    def readable(self):
        return True

    def read(self, size=-1):
        size = self.size - self.at if size < 0 else min(size, self.size - self.at)
        begin = self.at % len(self.piece)
        data = (self.piece[begin:] + self.piece * (size // len(self.piece) + 1))[:size]
        self.at += size
        return data


def hash_of_noise(size):
    noise, of = Noise(size), hashlib.sha256()
    while data := noise.read(MIB):
        of.update(data)
    return of.hexdigest()


def setUpModule():
    Case.shared = Sandbox.create(timeout=600, metadata={"mark": MARK, "of": "a & b=c"}, envs={"OF_SANDBOX": "sandbox's"})


def tearDownModule():
    Case.shared.kill()


class Case(unittest.TestCase):
    shared = None

    def setUp(self):
        self.box = self.shared
        self.run_in_box = self.box.commands.run
        self.home = self.box.files.get_info(".").path
        self.dir = self.id().rsplit(".", 1)[1]

    def out(self, command, **options):
        return self.run_in_box(command, **options).stdout

    def new_box(self, **options):
        box = Sandbox.create(**{"timeout": 120, **options})
        self.addCleanup(box.kill)
        return box

    def assert_gone(self, sandbox_id):
        self.assertNotIn(sandbox_id, ids_of(Sandbox.list()))
        with self.assertRaises(NotFoundException):
            Sandbox.connect(sandbox_id)


def ids_of(paginator):
    found = []
    while paginator.has_next:
        found += [each.sandbox_id for each in paginator.next_items()]
    return found


class Commands(Case):
    def test_a_command_has_the_environment_of_its_sandbox_and_its_own(self):
        said = self.out('echo "$OF_SANDBOX, $OF_COMMAND"', envs={"OF_COMMAND": "command's"})
        self.assertEqual(said, "sandbox's, command's\n")
        self.assertEqual(self.out('echo "$OF_SANDBOX, $OF_COMMAND"', envs={"OF_SANDBOX": "mine"}), "mine, \n")

    def test_it_starts_at_home_or_where_requested(self):
        self.assertEqual(self.out("pwd; cd; pwd; echo $HOME"), f"{self.home}\n" * 3)
        self.box.files.make_dir(self.dir)
        self.assertEqual(self.out("pwd", cwd=self.dir), f"{self.home}/{self.dir}\n")
        self.assertEqual(self.out("pwd", cwd=f"{self.home}/{self.dir}"), f"{self.home}/{self.dir}\n")

    def test_output_arrives_while_it_is_written(self):
        came = []

        def note(stream):
            def take(text):
                came.append((stream, text))
                self.box.files.write(f"{self.dir}/{len(came)}", "")
            return take
        self.box.files.make_dir(self.dir)
        seen = lambda count: f"until [ -e {count} ]; do sleep 0.05; done"
        result = self.run_in_box(f"echo one; {seen(1)}; echo two >&2; {seen(2)}; echo three", cwd=self.dir,
                                 on_stdout=note("out"), on_stderr=note("err"))
        self.assertEqual(came, [("out", "one\n"), ("err", "two\n"), ("out", "three\n")])
        self.assertEqual((result.stdout, result.stderr, result.exit_code), ("one\nthree\n", "two\n", 0))

    def test_output_of_many_megabytes_and_of_many_languages_is_whole(self):
        self.assertEqual(len(self.out(f"head -c {16 * MIB} /dev/zero | tr '\\0' x")), 16 * MIB)
        text = "žluťoučký кот 猫 🐈"
        self.assertEqual(self.out(f"printf '%s' '{text}'"), text)

    def test_an_exit_code_comes_with_what_was_written(self):
        with self.assertRaises(CommandExitException) as failed:
            self.run_in_box("echo out; echo err >&2; exit 3")
        self.assertEqual((failed.exception.exit_code, failed.exception.stdout, failed.exception.stderr), (3, "out\n", "err\n"))
        with self.assertRaises(CommandExitException) as failed:
            self.run_in_box("no-such-program")
        self.assertEqual(failed.exception.exit_code, 127)

    def test_a_command_is_ended_at_its_timeout(self):
        began = time.monotonic()
        with self.assertRaises(TimeoutException):
            self.run_in_box("sleep 61.5", timeout=1)
        self.assertLess(time.monotonic() - began, 20)
        self.assertTrue(eventually(lambda: not self.listed("sleep 61.5")))

    def listed(self, command):
        return [each for each in self.box.commands.list() if each.args[-1:] == [command]]

    def test_stdin_is_sent_and_closed(self):
        command = "cat; echo end" if not OLD else "head -n 2; echo end"
        handle = self.run_in_box(command, background=True, stdin=True)
        self.box.commands.send_stdin(handle.pid, "one\n")
        self.box.commands.send_stdin(handle.pid, "two\n")
        if not OLD:
            self.box.commands.stream_input(handle.pid, ["three\n", b"four\n"])
            self.box.commands.close_stdin(handle.pid)
        self.assertEqual(handle.wait().stdout, "one\ntwo\nend\n" if OLD else "one\ntwo\nthree\nfour\nend\n")

    @unittest.skipIf(OLD, "this release does not close stdin")
    def test_a_megabyte_goes_to_stdin(self):
        handle = self.run_in_box("sha256sum", background=True, stdin=True)
        self.box.commands.send_stdin(handle.pid, b"x" * MIB)
        handle.close_stdin()
        self.assertEqual(handle.wait().stdout.split()[0], sha256(b"x" * MIB))

    @unittest.skipIf(OLD, "this release has no git")
    def test_the_sdks_own_git(self):
        self.box.git.init(self.dir, initial_branch="main")
        self.box.files.write(f"{self.dir}/file", "x")
        self.box.git.add(self.dir)
        self.box.git.commit(self.dir, "of me", author_name="me", author_email="me@here")
        self.assertEqual(self.out("git log --format=%an:%s", cwd=self.dir), "me:of me\n")
        self.assertEqual(self.box.git.status(self.dir).current_branch, "main")

    def test_a_command_without_stdin_reads_its_end(self):
        self.assertEqual(self.out("cat; echo end", timeout=10), "end\n")

    def test_a_command_in_the_background_outlives_its_client(self):
        handle = self.run_in_box("read -r line; echo got $line; exit 4", background=True, stdin=True, timeout=0)
        handle.disconnect()
        again = Sandbox.connect(self.box.sandbox_id).commands.connect(handle.pid)
        self.assertEqual(again.pid, handle.pid)
        self.box.commands.send_stdin(handle.pid, "it\n")
        with self.assertRaises(CommandExitException) as ended:
            again.wait()
        self.assertEqual((ended.exception.stdout, ended.exception.exit_code), ("got it\n", 4))
        with self.assertRaises(CommandExitException) as ended:
            self.box.commands.connect(handle.pid).wait()
        self.assertEqual(ended.exception.exit_code, 4)
        with self.assertRaises(NotFoundException):
            self.box.commands.connect(1)

    def test_a_connection_to_a_command_has_its_own_timeout(self):
        handle = self.run_in_box("sleep 68", background=True, timeout=0)
        handle.disconnect()
        began = time.monotonic()
        with self.assertRaises(TimeoutException):
            self.box.commands.connect(handle.pid, timeout=1).wait()
        self.assertLess(time.monotonic() - began, 20)
        self.assertTrue(self.box.commands.kill(handle.pid), "it went on")

    def test_a_killed_command_says_so(self):
        handle = self.run_in_box("sleep 62 & sleep 63", background=True)
        self.assertTrue(self.box.commands.kill(handle.pid))
        with self.assertRaises(CommandExitException) as ended:
            handle.wait()
        self.assertEqual(ended.exception.exit_code, -1)
        self.assertIn("killed", ended.exception.error)
        self.assertFalse(self.box.commands.kill(handle.pid))

    def test_a_running_command_is_listed(self):
        command = "sleep 64"
        handle = self.run_in_box(command, background=True, envs={"A": "b"}, cwd=self.home)
        (listed,) = self.listed(command)
        self.assertEqual((listed.pid, listed.cmd, listed.args), (handle.pid, "/bin/bash", ["-l", "-c", command]))
        self.assertEqual((listed.envs, listed.cwd), ({"A": "b"}, self.home))
        self.assertTrue(handle.kill())
        self.assertTrue(eventually(lambda: not self.listed(command)))

    def test_input_without_stdin_is_a_wrong_argument(self):
        handle = self.run_in_box("sleep 67", background=True, stdin=False)
        with self.assertRaises(SandboxException if OLD else InvalidArgumentException):
            self.box.commands.send_stdin(handle.pid, "x")
        handle.kill()

    def test_the_sandboxs_own_user_is_known_by_its_name(self):
        self.assertEqual(self.out("id -u", user="agent"), self.out("id -u"))
        self.assertEqual(self.box.files.write(f"{self.dir}/file", "x", user="agent").name, "file")

    def test_a_directory_that_is_not_there_is_refused(self):
        with self.assertRaises(InvalidArgumentException):
            self.run_in_box("true", cwd="not-there")


class Terminals(Case):
    def test_a_terminal_has_its_size_its_input_and_its_end(self):
        said = []
        handle = self.box.pty.create(PtySize(rows=24, cols=80), envs={"PS1": "", "OF_PTY": "seen"})
        reader = threading.Thread(target=lambda: said.append(self.read(handle, said)))
        reader.start()
        send = lambda text: self.box.pty.send_stdin(handle.pid, text.encode())
        send("stty -echo; stty size; test -t 0 && echo of $OF_PTY\n")
        self.assertTrue(eventually(lambda: "24 80" in self.text(said) and "of seen" in self.text(said)), said)
        self.box.pty.resize(handle.pid, PtySize(rows=40, cols=101))
        send("stty size; exit\n")
        reader.join(20)
        self.assertFalse(reader.is_alive())
        self.assertIn("40 101", self.text(said))
        self.assertEqual(said[-1], 0)

    @staticmethod
    def read(handle, said):
        return handle.wait(on_pty=said.append).exit_code

    @staticmethod
    def text(said):
        return b"".join(each for each in said if isinstance(each, (bytes, bytearray))).decode()

    def test_a_terminal_is_killed(self):
        handle = self.box.pty.create(PtySize(rows=24, cols=80))
        self.assertTrue(self.box.pty.kill(handle.pid))
        with self.assertRaises(CommandExitException):
            handle.wait()
        self.assertFalse(self.box.pty.kill(handle.pid))


class Files(Case):
    def setUp(self):
        super().setUp()
        self.files = self.box.files

    def at(self, name):
        return f"{self.dir}/{name}"

    def test_text_bytes_and_nothing_come_back(self):
        every = bytes(range(256)) * 3
        for name, content in (("text", "žluťoučký\r\n猫"), ("bytes", every), ("empty", ""), ("stream", io.BytesIO(every))):
            written = self.files.write(self.at(name), content)
            self.assertEqual((written.name, written.path), (name, f"{self.home}/{self.dir}/{name}"))
        self.assertEqual(self.files.read(self.at("text")), "žluťoučký\r\n猫")
        self.assertEqual(bytes(self.files.read(self.at("bytes"), format="bytes")), every)
        self.assertEqual(b"".join(self.files.read(self.at("stream"), format="stream")), every)
        self.assertEqual(self.files.read(self.at("empty")), "")
        self.files.write(self.at("text"), "shorter")
        self.assertEqual(self.files.read(f"{self.home}/{self.dir}/text"), "shorter")

    def test_names_of_all_sorts_and_directories_on_the_way(self):
        for name in ("a b", "ž 猫 🐈", "per%20cent", "quo\"te'd", "plus+and&", "-dash", "semi;colon#", "in/a/new/directory"):
            with self.subTest(name):
                self.files.write(self.at(name), name)
                self.assertEqual(self.files.read(self.at(name)), name)
        seen = self.out("find . -type f | LC_ALL=C sort", cwd=self.dir)
        self.assertIn("./in/a/new/directory\n", seen)
        self.assertIn("./ž 猫 🐈\n", seen)

    @unittest.skipUnless("scope_sandbox" in CAPABILITIES, "this backend has only the files of the workspace")
    def test_files_elsewhere_in_the_sandbox(self):
        path = f"/tmp/{MARK}/file"
        self.assertEqual(self.files.write(path, "elsewhere").path, path)
        self.assertEqual(self.out(f"cat {path}"), "elsewhere")
        self.assertEqual([each.path for each in self.files.list(f"/tmp/{MARK}")], [path])
        self.files.remove(f"/tmp/{MARK}")
        self.assertFalse(self.files.exists(path))

    def test_several_files_at_once(self):
        files = [{"path": self.at(f"{i}/file"), "data": f"{i}" * i} for i in range(5)]
        written = self.files.write_files(files)
        self.assertEqual([each.path for each in written], [f"{self.home}/{each['path']}" for each in files])
        for each in files:
            self.assertEqual(self.files.read(each["path"]), each["data"])

    def test_a_hundred_megabytes_up_and_down(self):
        expected = hash_of_noise(BIG)
        self.files.write(self.at("big"), io.BytesIO(Noise(BIG).read()) if OLD else Noise(BIG), request_timeout=120)
        self.assertEqual(self.out("sha256sum big", cwd=self.dir).split()[0], expected)
        of = hashlib.sha256()
        for piece in self.files.read(self.at("big"), format="stream", request_timeout=120):
            of.update(piece)
        self.assertEqual(of.hexdigest(), expected)
        self.assertEqual(sha256(self.files.read(self.at("big"), format="bytes", request_timeout=120)), expected)
        self.files.remove(self.at("big"))

    @unittest.skipIf(OLD, "this release does not pack")
    def test_a_file_is_packed_on_the_way(self):
        text = "again and " * 10000
        self.files.write(self.at("packed"), text, gzip=True)
        self.assertEqual(self.out("sha256sum packed", cwd=self.dir).split()[0], sha256(text.encode()))
        self.assertEqual(self.files.read(self.at("packed"), gzip=True), text)

    def test_what_is_not_there_is_not_found(self):
        for ask in (self.files.read, self.files.list, self.files.get_info, self.files.watch_dir,
                    lambda path: self.files.rename(path, "other")):
            with self.assertRaises(NotFoundException):
                ask("missing")
        self.assertFalse(self.files.exists("missing"))
        with self.assertRaises(InvalidArgumentException):
            self.files.read(".")

    def test_directories_are_made_moved_and_removed(self):
        self.assertTrue(self.files.make_dir(self.at("one/two")))
        self.assertFalse(self.files.make_dir(self.at("one/two")))
        self.assertTrue(self.files.exists(self.at("one/two")))
        self.files.write(self.at("one/two/file"), "moved")
        moved = self.files.rename(self.at("one/two/file"), self.at("one/other"))
        self.assertEqual((moved.name, moved.path), ("other", f"{self.home}/{self.dir}/one/other"))
        self.assertFalse(self.files.exists(self.at("one/two/file")))
        self.assertEqual(self.files.read(self.at("one/other")), "moved")
        self.files.remove(self.at("one"))
        self.assertFalse(self.files.exists(self.at("one")))

    def test_a_file_is_no_directory(self):
        self.files.write(self.at("file"), "x")
        watch = [self.files.watch_dir] if "watch" in CAPABILITIES else []
        for ask in (self.files.make_dir, self.files.list, *watch):
            with self.subTest(ask), self.assertRaisesRegex(InvalidArgumentException, "not a directory"):
                ask(self.at("file"))
        with self.assertRaises(InvalidArgumentException):
            self.files.make_dir(self.at("file/below"))

    def test_a_file_that_is_read_only_is_replaced(self):
        self.files.write(self.at("file"), "before")
        self.out("chmod 444 file", cwd=self.dir)
        self.files.write(self.at("file"), "after")
        self.assertEqual((self.files.read(self.at("file")), self.files.get_info(self.at("file")).mode), ("after", 0o444))
        self.files.write(self.at("other"), "moved")
        self.files.rename(self.at("other"), self.at("file"))
        self.assertEqual(self.files.read(self.at("file")), "moved")

    def test_a_list_has_the_requested_depth(self):
        self.files.write_files([{"path": self.at(name), "data": "x"} for name in ("b", "a/1", "a/sub/2", "a/sub/deep/3")])
        names = lambda depth: [each.path.removeprefix(f"{self.home}/{self.dir}/")
                               for each in self.files.list(self.dir, depth=depth)]
        self.assertEqual(names(1), ["a", "b"])
        self.assertEqual(names(2), ["a", "a/1", "a/sub", "b"])
        self.assertEqual(names(9), ["a", "a/1", "a/sub", "a/sub/2", "a/sub/deep", "a/sub/deep/3", "b"])
        self.assertEqual([each.type.value for each in self.files.list(self.dir)], ["dir", "file"])

    def test_a_file_says_what_it_is(self):
        self.files.write(self.at("file"), "12345")
        self.out("chmod 640 file; ln -s file link", cwd=self.dir)
        info = self.files.get_info(self.at("file"))
        self.assertEqual((info.name, info.type.value, info.size, info.mode, info.permissions),
                         ("file", "file", 5, 0o640, "-rw-r-----"))
        self.assertLess(abs(info.modified_time.timestamp() - time.time()), 120)
        self.assertEqual(self.files.get_info(self.dir).type.value, "dir")
        self.assertEqual(self.files.read(self.at("link")), "12345")
        listed = [(each.name, each.type.value) for each in self.files.list(self.dir)]
        self.assertEqual(listed, [("file", "file")] + ([] if OLD else [("link", "symlink")]))

    def fetch(self, url, data=None, headers=None):
        request = urllib.request.Request(url, data=data, headers=headers or {})
        with urllib.request.urlopen(request, timeout=60) as answer:
            return answer.read()

    def refused(self, url):
        with self.assertRaises(urllib.error.HTTPError) as error:
            self.fetch(url)
        error.exception.close()
        return error.exception.code

    def test_a_signed_url_is_all_that_a_download_needs(self):
        path = self.at("ž & file")
        self.files.write(path, "signed")
        url = self.box.download_url(path, use_signature_expiration=60)
        self.assertEqual(self.fetch(url), b"signed")
        self.assertEqual(self.fetch(self.box.download_url(path)), b"signed")
        self.files.write(self.at("another"), "secret")
        self.assertIn(self.refused(url.replace(urllib.parse.quote("ž & file"), "another")), (400, 401, 403))
        self.assertIn(self.refused(re.sub("signature=[^&]*&?", "", url)), (400, 401, 403))
        self.assertEqual(self.refused(self.box.download_url(path, use_signature_expiration=-10)), 401)

    def test_a_signed_url_is_all_that_an_upload_needs(self):
        url = self.box.upload_url(self.at("uploaded"), use_signature_expiration=60)
        body = b'--of\r\nContent-Disposition: form-data; name="file"; filename="any"\r\n\r\nby a form\r\n--of--\r\n'
        self.fetch(url, body, {"Content-Type": "multipart/form-data; boundary=of"})
        self.assertEqual(self.files.read(self.at("uploaded")), "by a form")
        self.assertIn(self.refused(url), (400, 401))  # it is no download

    @unittest.skipUnless("watch" in CAPABILITIES, "this backend has no watches")
    def test_a_watch_reports_changes(self):
        self.files.make_dir(self.dir)
        watch = self.files.watch_dir(self.dir)
        self.files.write(self.at("file"), "x")
        self.files.rename(self.at("file"), self.at("other"))
        self.files.remove(self.at("other"))
        seen = []
        wanted = {("create", "file"), ("rename", "file"), ("create", "other"), ("remove", "other")}
        self.assertTrue(eventually(lambda: self.take(watch, seen) >= wanted), seen)
        watch.stop()
        with self.assertRaises(SandboxException):
            watch.get_new_events()

    @unittest.skipUnless("watch" in CAPABILITIES, "this backend has no watches")
    def test_a_watch_reports_what_is_below(self):
        self.files.make_dir(self.at("sub"))
        flat, deep = self.files.watch_dir(self.dir), self.files.watch_dir(self.dir, recursive=True)
        self.files.write(self.at("sub/new/file"), "x")
        seen = []
        self.assertTrue(eventually(lambda: self.take(deep, seen) >= {("create", "sub/new"), ("create", "sub/new/file")}), seen)
        self.assertFalse([each for each in flat.get_new_events() if "/" in each.name])
        for each in (flat, deep):
            each.stop()

    @staticmethod
    def take(watch, seen):
        seen += [(each.type.value, each.name) for each in watch.get_new_events()]
        return set(seen)


class Sandboxes(Case):
    def test_a_sandbox_says_what_it_is(self):
        info = self.box.get_info()
        self.assertEqual((info.sandbox_id, info.template_id), (self.box.sandbox_id, "base"))
        self.assertEqual(info.metadata, {"mark": MARK, "of": "a & b=c"})
        self.assertGreater(info.end_at, info.started_at)
        self.assertTrue(self.box.is_running())
        self.assertEqual(len(self.box.get_metrics()), 1)

    @unittest.skipUnless(BACKEND == "docker", "the other defaults are limits of this machine, or none")
    def test_its_size_is_what_is_enforced(self):
        info, sample = self.box.get_info(), self.box.get_metrics()[0]
        self.assertEqual((info.cpu_count, info.memory_mb), (1, 512), "the backend's own defaults: none is configured")
        self.assertEqual((sample.cpu_count, sample.mem_total), (1, 512 * MIB))
        self.assertEqual([each.memory_mb for each in Sandbox.list().next_items() if each.sandbox_id == info.sandbox_id], [512])

    @unittest.skipUnless(BACKEND == "docker", "no images")
    def test_a_template_is_its_image(self):
        box = self.new_box(template="tools", envs={"A": "b"})
        self.assertEqual(box.get_info().template_id, "tools")
        self.assertEqual(box.commands.run("cat /etc/template; whoami; echo $A").stdout, "of the template\nagent\nb\n")
        box.files.write("a", "written")
        self.assertEqual(box.files.read("a"), "written")
        self.assertEqual(Sandbox.connect(box.sandbox_id).commands.run("cat /etc/template a").stdout, "of the template\nwritten")
        self.assertEqual(self.run_in_box("ls /etc").stdout.split().count("template"), 0, "and base is another")

    @unittest.skipUnless(BACKEND == "docker", "no images")
    def test_a_template_whose_image_cannot_serve_is_refused_with_the_reason(self):
        for template, reason in (("absent", "is not on this Engine"), ("barred", "is not admitted by `images`"),
                                 ("bare", "cannot run `/bin/bash`")):
            with self.assertRaisesRegex(SandboxException, reason) as raised:
                Sandbox.create(template=template)
            self.assertNotIn("retry", str(raised.exception))

    def test_sandboxes_are_listed_by_their_metadata(self):
        other = self.new_box(metadata={"mark": MARK, "of": "other"})
        of = lambda **metadata: set(ids_of(Sandbox.list(query=SandboxQuery(metadata=metadata))))
        self.assertEqual(of(mark=MARK), {self.box.sandbox_id, other.sandbox_id})
        self.assertEqual(of(mark=MARK, of="other"), {other.sandbox_id})
        self.assertEqual(of(of="a & b=c"), {self.box.sandbox_id})
        self.assertEqual(of(mark="another"), set())
        pages = ids_of(Sandbox.list(limit=1, query=SandboxQuery(metadata={"mark": MARK})))
        self.assertEqual(pages, [other.sandbox_id, self.box.sandbox_id])
        of_mine = Sandbox.list(limit=1, query=SandboxQuery(metadata={"mark": MARK}))
        self.assertEqual([each.sandbox_id for each in of_mine.next_items()], [other.sandbox_id])
        other.kill()
        self.assertTrue(of_mine.has_next)
        self.assertEqual([each.sandbox_id for each in of_mine.next_items()], [self.box.sandbox_id], "the last one is gone")
        self.assertFalse(of_mine.has_next)
        with self.assertRaisesRegex(SandboxException, "nextToken"):
            Sandbox.list(next_token="nonsense").next_items()

    def test_a_sandbox_is_connected_to(self):
        other = Sandbox.connect(self.box.sandbox_id)
        other.files.write("of_the_other", "written")
        self.assertEqual(self.box.files.read("of_the_other"), "written")
        self.assertEqual(other.commands.run('echo "$OF_SANDBOX"').stdout, "sandbox's\n")
        with self.assertRaises(NotFoundException):
            Sandbox.connect("no-such-sandbox")

    def test_a_port_is_reached_by_its_host(self):
        if "ports" not in CAPABILITIES:
            self.skipTest("this backend does not reach ports")
        self.box.files.write("served/index.html", "served from within")
        server = self.run_in_box("exec python3 -m http.server 8123", cwd="served", background=True, timeout=0)
        host = self.box.get_host(8123)
        self.assertTrue(host.startswith(f"8123-{self.box.sandbox_id}."), host)
        token = self.box.traffic_access_token
        self.assertTrue(eventually(lambda: self.ask(host, token) == (200, b"served from within")), self.ask(host, token))
        self.assertEqual(self.ask(host, None)[0], 403)
        self.assertEqual(self.ask(self.box.get_host(8124), token)[0], 502)
        by_header = lambda port: {"E2b-Sandbox-Id": self.box.sandbox_id, "E2b-Sandbox-Port": port}
        self.assertEqual(self.ask("any", token, by_header("8123")), (200, b"served from within"))
        self.assertEqual(self.ask("any", None, by_header("8123"))[0], 403)
        self.assertEqual(self.ask("any", token, by_header("8124"))[0], 502)
        self.assertEqual(self.ask("any", token, by_header("08123"))[0], 400)
        self.assertEqual(self.ask("any", token, by_header("49983"))[0], 404)  # envd's: not its call
        server.kill()

    @staticmethod
    def ask(host, token, more=None):
        connection = http.client.HTTPConnection(DOOR.removeprefix("http://"), timeout=30)
        headers = {"Host": host, **(more or {}), **({"E2b-Traffic-Access-Token": token} if token else {})}
        connection.request("GET", "/", headers=headers)
        answer = connection.getresponse()
        found = answer.status, answer.read()
        connection.close()
        return found

    def test_a_timeout_is_set(self):
        box = self.new_box(timeout=100)
        before = box.get_info().end_at
        box.set_timeout(300)
        self.assertGreater(box.get_info().end_at - before, datetime.timedelta(seconds=190))
        box.set_timeout(50)
        self.assertLess(box.get_info().end_at, before)

    def test_a_killed_sandbox_is_gone(self):
        box = self.new_box()
        box.files.write("file", "x")
        self.assertTrue(box.kill())
        self.assertFalse(box.is_running())
        self.assertFalse(box.kill())
        for use in (lambda: box.commands.run("true"), lambda: box.files.read("file"), lambda: box.files.list(".")):
            with self.assertRaises((TimeoutException, NotFoundException)):
                use()
        self.assert_gone(box.sandbox_id)

    def test_a_command_hears_that_its_sandbox_was_killed(self):
        box = self.new_box()
        handle = box.commands.run("sleep 65", background=True)
        threading.Timer(0.5, box.kill).start()
        with self.assertRaisesRegex(NOT_RUNNING, "was not found"):
            handle.wait()

    def test_an_end_that_came_before_that_of_the_sandbox_is_reported(self):
        box = self.new_box()
        handle = box.commands.run("head -c 16000000 /dev/zero | tr '\\0' x; exit 3", background=True)
        self.assertTrue(eventually(lambda: not box.commands.list()), "it waits for its reader")
        self.assertTrue(box.kill())
        with self.assertRaises(CommandExitException) as ended:
            handle.wait()
        self.assertEqual(ended.exception.exit_code, 3)

    def test_a_sandbox_ends_at_its_timeout(self):
        box = self.new_box(timeout=30)
        box.set_timeout(1)
        self.assertTrue(eventually(lambda: not box.is_running()))
        self.assert_gone(box.sandbox_id)

    def test_a_sandbox_without_a_network_is_made_where_that_is_sure(self):
        if DENIES:
            box = self.new_box(allow_internet_access=False)
            self.assertEqual(box.commands.run("echo made").stdout, "made\n")
            return
        with self.assertRaisesRegex(SandboxException, "egress: deny"):
            Sandbox.create(allow_internet_access=False)

    def test_refusals_are_the_exceptions_of_the_sdk(self):
        with self.assertRaises(AuthenticationException):
            Sandbox.create(api_key="e2b_" + "0" * 64)
        with self.assertRaisesRegex(SandboxException, "no-such-template"):
            Sandbox.create(template="no-such-template")
        if not OLD:
            with self.assertRaisesRegex(SandboxException, "`iam` is not supported"):
                Sandbox.create(iam={"tokens": {"a": {"audience": "b", "token_type": "JWT-SVID"}}})
        for refused in (lambda: self.box.beta_pause(), lambda: self.run_in_box("true", user="root")):
            with self.assertRaises(SandboxException):
                refused()
        self.assertTrue(self.box.is_running())


def on_one_loop(case):
    """The oldest shares connections among all its sandboxes; they belong to the event loop that it saw first."""
    @functools.wraps(case)
    def run(self):
        LOOP.run_until_complete(case(self))
    return run


class Async(unittest.TestCase):
    def setUp(self):
        self.box = LOOP.run_until_complete(AsyncSandbox.connect(Case.shared.sandbox_id))

    @on_one_loop
    async def test_a_sandbox_of_the_asynchronous_client(self):
        box = await AsyncSandbox.create(timeout=60, envs={"A": "b"})
        try:
            said = []
            result = await box.commands.run("echo $A; echo err >&2", on_stdout=said.append)
            self.assertEqual((result.stdout, result.stderr, said), ("b\n", "err\n", ["b\n"]))
            self.assertTrue(await box.is_running())
        finally:
            self.assertTrue(await box.kill())
        self.assertFalse(await box.is_running())

    @on_one_loop
    async def test_many_commands_at_once(self):
        results = await asyncio.gather(*(self.box.commands.run(f"sleep 0.2; echo {i}") for i in range(8)))
        self.assertEqual([each.stdout for each in results], [f"{i}\n" for i in range(8)])

    @on_one_loop
    async def test_input_and_the_end_of_a_command(self):
        handle = await self.box.commands.run("read -r line; echo got $line; sleep 66", background=True, stdin=True)
        await self.box.commands.send_stdin(handle.pid, "it\n")
        for _ in range(200):
            if handle.stdout == "got it\n":
                break
            await asyncio.sleep(0.05)
        self.assertEqual(handle.stdout, "got it\n")
        self.assertTrue(await handle.kill())
        with self.assertRaises(CommandExitException):
            await handle.wait()

    @on_one_loop
    async def test_files(self):
        await self.box.files.write("async/file", b"\0\xff")
        self.assertEqual(bytes(await self.box.files.read("async/file", format="bytes")), b"\0\xff")
        pieces = [piece async for piece in await self.box.files.read("async/file", format="stream")]
        self.assertEqual(b"".join(pieces), b"\0\xff")
        self.assertEqual([each.name for each in await self.box.files.list("async")], ["file"])
        with self.assertRaises(NotFoundException):
            await self.box.files.read("async/missing")

    @unittest.skipUnless("watch" in CAPABILITIES, "this backend has no watches")
    @on_one_loop
    async def test_a_watch_calls_back(self):
        await self.box.files.make_dir("watched")
        seen = []
        watch = await self.box.files.watch_dir("watched", on_event=lambda event: seen.append((event.type.value, event.name)),
                                               recursive=True)
        await self.box.files.write("watched/sub/file", "x")
        for _ in range(200):
            if ("create", "sub/file") in seen:
                break
            await asyncio.sleep(0.05)
        self.assertIn(("create", "sub/file"), seen)
        await watch.stop()

    @on_one_loop
    async def test_a_terminal(self):
        said = []
        handle = await self.box.pty.create(PtySize(rows=30, cols=90), on_data=lambda data: said.append(data))
        await self.box.pty.send_stdin(handle.pid, b"stty size; exit\n")
        self.assertEqual((await handle.wait()).exit_code, 0)
        self.assertIn(b"30 90", b"".join(said))
