"""The sandboxes of agent frameworks that use E2B: what an agent's tools do, without a model. A class for each; started
by sdk_test.py."""

import asyncio
import io
import pathlib
import unittest


class LangChain(unittest.TestCase):
    def setUp(self):
        import e2b
        from langchain_e2b import AsyncE2BSandbox, E2BSandbox
        self.wrap, self.wrap_async = E2BSandbox, AsyncE2BSandbox
        self.of_e2b, self.of_e2b_async = e2b.Sandbox, e2b.AsyncSandbox

    def test_an_agents_tools(self):
        with self.of_e2b.create(timeout=120) as box:
            tools = self.wrap(sandbox=box)
            self.assertEqual(tools.id, box.sandbox_id)
            done = tools.execute("pwd; echo err >&2; exit 3")
            self.assertEqual(done.exit_code, 3)
            self.assertIn("/home/user\n", done.output)
            self.assertIn("err", done.output)
            self.assertIsNone(tools.upload_files([("/home/user/in/a.txt", b"one\ntwo\n")])[0].error)
            self.assertEqual(tools.download_files(["/home/user/in/a.txt"])[0].content, b"one\ntwo\n")
            found = tools.download_files(["/home/user/in", "/home/user/none"])
            self.assertEqual([each.error for each in found], ["is_directory", "file_not_found"])
            self.assertIsNone(tools.write("/home/user/in/b.txt", "three\n").error)
            self.assertIsNone(tools.edit("/home/user/in/b.txt", "three", "four").error)
            self.assertIn("four", str(tools.read("/home/user/in/b.txt")))
            self.assertIn("b.txt", str(tools.ls("/home/user/in")))
            self.assertIn("b.txt", str(tools.grep("four", "/home/user")))
            self.assertIn("a.txt", str(tools.glob("*.txt", "/home/user/in")))

    def test_an_agents_asynchronous_tools(self):
        asyncio.run(self.use_asynchronous_tools())

    async def use_asynchronous_tools(self):
        box = await self.of_e2b_async.create(timeout=120)
        try:
            tools = self.wrap_async(sandbox=box)
            self.assertEqual((await tools.aexecute("echo $((6 * 7))")).output.strip(), "42")
            self.assertIsNone((await tools.awrite("/home/user/c.txt", "five\n")).error)
            self.assertEqual((await tools.adownload_files(["/home/user/c.txt"]))[0].content, b"five\n")
            self.assertIn("c.txt", str(await tools.als("/home/user")))
        finally:
            await box.kill()


class OpenAIAgents(unittest.TestCase):
    def test_an_agents_session(self):
        asyncio.run(self.use_a_session())

    async def use_a_session(self):
        from agents.extensions.sandbox.e2b import E2BSandboxClient, E2BSandboxClientOptions
        from agents.sandbox.manifest import Manifest
        client = E2BSandboxClient()
        session = await client.create(
            manifest=Manifest(root="/home/user/work"),
            options=E2BSandboxClientOptions(sandbox_type="e2b", timeout=120, envs={"A": "b"}, on_timeout="kill",
                                            auto_resume=False))
        try:
            await session.start()
            done = await session.exec("echo $A; pwd; echo err >&2; exit 3")
            self.assertEqual((done.exit_code, done.stdout, done.stderr), (3, b"b\n/home/user/work\n", b"err\n"))
            await session.write(pathlib.Path("in/a.txt"), io.BytesIO(b"one\n"))
            self.assertEqual((await session.read(pathlib.Path("in/a.txt"))).read(), b"one\n")
            self.assertEqual((await session.exec("cat in/a.txt")).stdout, b"one\n")
            self.assertTrue(await session.running())
            packed = await session.persist_workspace()
            await session.exec("rm -r in")
            await session.hydrate_workspace(packed)
            self.assertEqual((await session.exec("cat in/a.txt")).stdout, b"one\n")
        finally:
            await session.shutdown()
        self.assertFalse(await session.running())
