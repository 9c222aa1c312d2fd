"""What an MCP host does with the official Python package, by either kind of revision, over HTTP and over stdio. Started by
sdk_test.py."""

import asyncio
import base64
import json
import os
import unittest
import urllib.request
import uuid

URL, KEY = os.environ["ISOGATE_URL"], os.environ["ISOGATE_TEST_KEY"]
ISOGATE = os.environ["ISOGATE_TEST_PROGRAM"]


def running(agent):
    """How many programs run in an agent's sandbox."""
    request = urllib.request.Request(f"{URL}/sandboxes", headers={"Authorization": f"Bearer {KEY}"})
    with urllib.request.urlopen(request, timeout=60) as answer:
        for each in json.load(answer)["sandboxes"]:
            if each["agent_id"] == agent:
                return each["running_execs"]
    return 0


async def eventually(holds, seconds=60):
    for _ in range(int(seconds / 0.1)):
        if await asyncio.to_thread(holds):
            return True
        await asyncio.sleep(0.1)
    return False


class Cases:
    """The cases; a subclass decides how the client connects."""

    @classmethod
    def setUpClass(cls):
        cls.agent = f"mcp-{uuid.uuid4().hex[:12]}"  # one sandbox for all its cases: a pod takes seconds to start

    def use(self, work):
        async def run():
            async with self.connect() as client:
                await work(client)
        asyncio.run(run())

    async def call(self, client, tool, **arguments):
        result = await client.call_tool(tool, arguments)
        self.assertFalse(result.is_error, result.content)
        return result.structured_content

    def test_the_tools_are_listed(self):
        async def work(client):
            if client.server_info:  # a client with a fixed revision does not ask for it
                self.assertEqual(client.server_info.name, "isogate")
            names = {tool.name for tool in (await client.list_tools()).tools}
            self.assertEqual(names, {"sandbox_status", "exec", "search_files", "read_file", "write_file", "edit_file",
                                     "list_files", "end_sandbox"})
        self.use(work)

    def test_an_agent_writes_code_runs_it_and_mends_it(self):
        async def work(client):
            await self.call(client, "write_file", path="src/hello.sh", content="echo helo $1\n")
            bad = await client.call_tool("exec", {"command": "sh src/hello.sh world | grep hello"})
            self.assertTrue(bad.is_error)
            self.assertEqual(bad.structured_content["exit_code"], 1)
            found = await self.call(client, "search_files", pattern="helo")
            self.assertEqual([(each["path"], each["line"]) for each in found["matches"]], [("src/hello.sh", 1)])
            await self.call(client, "edit_file", path="src/hello.sh", old_text="helo", new_text="hello")
            good = await self.call(client, "exec", argv=["sh", "src/hello.sh", "žluť 猫"])
            self.assertEqual((good["stdout"], good["exit_code"]), ("hello žluť 猫\n", 0))
            listed = await self.call(client, "list_files", recursive=True)
            self.assertIn("src/hello.sh", [each["name"] for each in listed["entries"]])
            self.assertEqual((await self.call(client, "read_file", path="src/hello.sh"))["content"], "echo hello $1\n")
        self.use(work)

    def test_bytes_that_are_no_text(self):
        async def work(client):
            data = bytes(range(256)) * 64
            await self.call(client, "write_file", path="data", content=base64.b64encode(data).decode(), encoding="base64")
            read = await self.call(client, "read_file", path="data")
            self.assertEqual((base64.b64decode(read["content"]), read["encoding"], read["size"]), (data, "base64", len(data)))
            shown = await self.call(client, "exec", command="cat data", max_output_bytes=100)
            self.assertEqual(base64.b64decode(shown["stdout"]), data[-100:])
            self.assertTrue(shown["truncated"])
        self.use(work)

    def test_a_refusal_is_reported_to_the_model(self):
        async def work(client):
            for tool, arguments, expected in [
                    ("read_file", {"path": "none"}, "file_not_found"),
                    ("edit_file", {"path": "none", "old_text": "a", "new_text": "b"}, "file_not_found"),
                    ("exec", {"command": "true", "no_such": 1}, "it takes"),
                    ("exec", {"argv": ["/no/such/program"]}, "")]:
                result = await client.call_tool(tool, arguments)
                self.assertTrue(result.is_error, tool)
                self.assertIn(expected, result.content[0].text)
        self.use(work)

    def test_progress_is_reported_while_output_comes(self):
        async def work(client):
            told = asyncio.Queue()

            async def progress(number, total, message):
                await told.put((number, message))
            call = asyncio.create_task(client.call_tool(
                "exec", {"command": "echo begun; until [ -e go ]; do sleep 0.1; done; echo done"},
                progress_callback=progress))
            self.assertIn("begun\n", (await asyncio.wait_for(told.get(), 120))[1])
            await self.call(client, "write_file", path="go", content="")
            self.assertEqual((await call).structured_content["stdout"], "begun\ndone\n")
        self.use(work)

    def test_a_call_that_is_given_up_ends_its_program(self):
        async def work(client):
            await self.call(client, "exec", command="true")
            call = asyncio.create_task(client.call_tool("exec", {"command": "sleep 1000"}))
            self.assertTrue(await eventually(lambda: running(self.agent) == 1))
            call.cancel()
            with self.assertRaises(asyncio.CancelledError):
                await call
            if not self.cancels:
                await self.call(client, "end_sandbox")
            self.assertTrue(await eventually(lambda: running(self.agent) == 0))
        self.use(work)

    def test_calls_at_once(self):
        async def work(client):
            await self.call(client, "exec", command="true")
            results = await asyncio.gather(*(self.call(client, "exec", command=f"echo {i}") for i in range(8)))
            self.assertEqual([each["stdout"] for each in results], [f"{i}\n" for i in range(8)])
        self.use(work)

    def test_status_reports_the_backend_and_end_ends_it(self):
        async def work(client):
            await self.call(client, "end_sandbox", purge=True)
            before = await self.call(client, "sandbox_status")
            self.assertEqual((before["agent_id"], before["exists"]), (self.agent, False))
            await self.call(client, "write_file", path="a", content="a")
            status = await self.call(client, "sandbox_status")
            self.assertEqual((status["exists"], status["backend"]), (True, os.environ["ISOGATE_TEST_BACKEND"]))
            await self.call(client, "end_sandbox", purge=True)
            self.assertFalse((await self.call(client, "sandbox_status"))["exists"])
        self.use(work)


class OverHttp(Cases):
    cancels = True

    def connect(self):
        from mcp import Client
        from mcp.client.streamable_http import create_mcp_http_client, streamable_http_client
        http = create_mcp_http_client(headers={"Authorization": f"Bearer {KEY}"})
        return Client(streamable_http_client(f"{URL}/mcp/{self.agent}", http_client=http), mode=self.mode)


class OverStdio(Cases):
    cancels = True

    def connect(self):
        from mcp import Client, StdioServerParameters
        parameters = StdioServerParameters(command=ISOGATE, args=[
            "mcp", "--stdio", "--url", URL, "--key-file", os.environ["ISOGATE_TEST_KEY_FILE"], "--agent", self.agent])
        return Client(parameters, mode=self.mode)


class HttpOf2026(OverHttp, unittest.TestCase):
    mode = "2026-07-28"


class HttpOf2025(OverHttp, unittest.TestCase):
    mode = "legacy"
    cancels = False  # it keeps the request open, and says so with a number that other clients use, too


class HttpOfEither(OverHttp, unittest.TestCase):
    mode = "auto"


class StdioOf2026(OverStdio, unittest.TestCase):
    mode = "2026-07-28"


class StdioOf2025(OverStdio, unittest.TestCase):
    mode = "legacy"


class WithoutAKey(unittest.TestCase):
    def test_a_client_is_told(self):
        from mcp import Client

        async def connect():
            async with Client(f"{URL}/mcp", mode="auto"):
                pass
        with self.assertRaises(BaseException):
            asyncio.run(connect())


if __name__ == "__main__":
    unittest.main()
