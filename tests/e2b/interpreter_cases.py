"""E2B's code interpreter: its SDK calls a server on port 49999 of the sandbox, which it names only in a header. Started by
sdk_test.py, with a server in the place of E2B's."""

import unittest

from e2b_code_interpreter import Sandbox

SERVER = """
import http.server, io, contextlib, json
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(204)
        self.end_headers()
    def do_POST(self):
        code = json.loads(self.rfile.read(int(self.headers["Content-Length"])))["code"]
        out = io.StringIO()
        with contextlib.redirect_stdout(out):
            exec(code)
        names = ",".join(sorted(each.lower() for each in self.headers if each.lower().startswith(("e2b-", "x-access"))))
        self.send_response(200)
        self.end_headers()
        for text in (out.getvalue(), f"{self.path} {names}"):
            self.wfile.write(json.dumps({"type": "stdout", "text": text, "timestamp": 0}).encode() + b"\\n")
http.server.HTTPServer(("127.0.0.1", 49999), Handler).serve_forever()
"""
IS_UP = "until python3 -c 'import urllib.request as r; r.urlopen(\"http://127.0.0.1:49999\")' 2>/dev/null; do sleep 0.1; done"


class CodeInterpreter(unittest.TestCase):
    def test_code_runs_on_the_server_of_its_sandbox(self):
        with Sandbox.create(timeout=120) as box:
            box.files.write("server.py", SERVER)
            box.commands.run("exec python3 server.py", background=True, timeout=0)
            box.commands.run(IS_UP, timeout=30)
            execution = box.run_code("print(6 * 7)")
            self.assertEqual(execution.logs.stdout, ["42\n", "/execute "])
