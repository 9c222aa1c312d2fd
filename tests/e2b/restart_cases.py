"""What an SDK finds after a restart of the gateway at another port: sdk_test.py runs Before, then After."""

import json
import os
import unittest

from e2b import NotFoundException, Sandbox

NOTES = os.environ["ISOGATE_TEST_NOTES"]
OUTLIVES = os.environ["ISOGATE_TEST_BACKEND"] in ("docker", "k8s")  # where programs do not end with the gateway


class Before(unittest.TestCase):
    def test_a_sandbox_is_left_with_a_file_and_a_process(self):
        box = Sandbox.create(timeout=600, metadata={"of": "before"}, envs={"OF_SANDBOX": "kept"})
        box.files.write("kept/file", "kept")
        handle = box.commands.run('read -r line; echo "$line, $OF_SANDBOX"', background=True, stdin=True, timeout=0)
        with open(NOTES, "w") as file:
            json.dump({"id": box.sandbox_id, "pid": handle.pid, "end": box.get_info().end_at.timestamp(),
                       "token": box._envd_access_token}, file)


class After(unittest.TestCase):
    def setUp(self):
        with open(NOTES) as file:
            self.notes = json.load(file)
        self.box = Sandbox.connect(self.notes["id"], timeout=60)

    def test_the_sandbox_is_the_same(self):
        info = self.box.get_info()
        self.assertEqual(info.metadata, {"of": "before"})
        self.assertAlmostEqual(info.end_at.timestamp(), self.notes["end"], delta=1)
        self.assertEqual(self.box._envd_access_token, self.notes["token"])
        self.assertEqual(self.box.files.read("kept/file"), "kept")
        self.assertEqual(self.box.commands.run("echo $OF_SANDBOX; cat kept/file").stdout, "kept\nkept")

    def test_the_process_still_has_its_pid(self):
        pid = self.notes["pid"]
        if not OUTLIVES:
            with self.assertRaises(NotFoundException):
                self.box.commands.send_stdin(pid, "x\n")
            return
        self.assertEqual([each.pid for each in self.box.commands.list()], [pid])
        handle = self.box.commands.connect(pid)
        self.box.commands.send_stdin(pid, "after\n")
        self.assertEqual(handle.wait().stdout, "after, kept\n")
