"""docs/openapi.json compared with what a client really sends and receives."""

import json
import pathlib
import re

import httpx
import jsonschema

DOCUMENT = json.loads((pathlib.Path(__file__).parents[2] / "docs" / "openapi.json").read_text(encoding="utf-8"))

# operationId: why the client for Python has no call for it
LEFT_OUT = {
    "attachExec": "a WebSocket; output(follow=True), write_stdin, signal and resize do the same over HTTP",
    "connectPort": "a WebSocket; isogate port-forward brings a port to this machine, for any client",
    "readFile": "downloadFile reads the same files, of any size",
    "writeFile": "uploadFile writes the same files, of any size",
    "removeFile": "deleteFile removes the same files, by any name",
    "listOrphans": "for operators: isogate sandbox ls --orphans",
    "deleteOrphan": "for operators: isogate sandbox rm --orphan",
    "mcp": "for clients of MCP",
    "mcpOfAgent": "for clients of MCP",
    "livez": "for supervisors; health() asks the same",
}


def follow(value):
    while isinstance(value, dict) and "$ref" in value:
        target = DOCUMENT
        for part in value["$ref"].removeprefix("#/").split("/"):
            target = target[part]
        value = target
    return value


class Operation:
    def __init__(self, method, path, item, described):
        self.id, self.described = described["operationId"], described
        self.method = method.upper()
        self.pattern = re.compile(re.sub(r"\{(\w+)\}", lambda each: "(.+)" if each[1] == "path" else "([^/]+)", path) + "$")
        self.parameters = [follow(each) for each in item.get("parameters", []) + described.get("parameters", [])]
        self.validators = {}

    def validator(self, schema):
        key = json.dumps(schema)
        if key not in self.validators:
            self.validators[key] = jsonschema.Draft202012Validator({**schema, "components": DOCUMENT["components"]})
        return self.validators[key]

    def check(self, value, media, what):
        for error in self.validator(media["schema"]).iter_errors(value):
            raise AssertionError(f"{self.id}: {what} does not fit: {error.message}: {json.dumps(value)[:300]}")

    def check_query(self, query):
        known = {each["name"]: each for each in self.parameters if each["in"] == "query"}
        for name, text in query.multi_items():
            assert name in known, f"{self.id}: no query parameter {name}"
            schema = follow(known[name].get("schema", {}))
            numeric = schema.get("type") in ("integer", "number", "boolean")
            self.check(json.loads(text) if numeric else text, {"schema": schema}, f"query parameter {name}")
        assert all(each["name"] in query for each in known.values() if each.get("required")), f"{self.id}: {query}"

    def check_request(self, request):
        self.check_query(request.url.params)
        content = follow(self.described.get("requestBody", {})).get("content", {})
        kind = request.headers.get("content-type")
        if not content:
            assert kind is None, f"{self.id}: takes no body"
            return
        assert kind in content, f"{self.id}: {kind}"
        if kind == "application/json":
            self.check(json.loads(request.read()), content[kind], "the request")

    def check_answer(self, status, headers, body):
        assert str(status) in self.described["responses"], f"{self.id}: status {status} is not in the document"
        response = follow(self.described["responses"][str(status)])
        assert "x-request-id" in headers
        if "content" not in response or self.method == "HEAD":
            assert not body
            return
        kind = headers["content-type"].partition(";")[0]
        assert kind in response["content"], f"{self.id}: {kind} with status {status}"
        media = response["content"][kind]
        if kind == "application/json":
            self.check(json.loads(body), media, f"the answer {status}")
        elif kind == "application/x-ndjson":
            for line in body.split(b"\n")[:-1]:
                self.check(json.loads(line), media, "an event")
        elif kind == "text/event-stream":
            for event, data in re.findall(rb"event: (.*)\ndata: (.*)\n\n", body):
                self.check({"event": event.decode(), "data": json.loads(data)}, media, "an event")


OPERATIONS = [Operation(method, path, item, described) for path, item in DOCUMENT["paths"].items()
              for method, described in item.items() if method != "parameters"]


class Witness:
    """Which operations were called; each request and response is checked against the document."""

    def __init__(self):
        self.seen = set()

    def of_request(self, request):
        path = request.url.raw_path.decode().partition("?")[0]
        for each in OPERATIONS:
            if each.method == request.method and each.pattern.match(path):
                self.seen.add(each.id)
                each.check_request(request)
                return each
        raise AssertionError(f"no operation for {request.method} {path}")


class Tee(httpx.SyncByteStream, httpx.AsyncByteStream):
    """A body on its way to the client, checked when it has ended."""

    def __init__(self, operation, response):
        self.operation, self.response, self.stream, self.body = operation, response, response.stream, b""

    def keep(self, data):
        if not self.response.headers["content-type"].startswith("application/octet"):
            self.body += data

    def check(self):
        self.operation.check_answer(self.response.status_code, self.response.headers, self.body)

    def __iter__(self):
        for data in self.stream:
            self.keep(data)
            yield data
        self.check()

    async def __aiter__(self):
        async for data in self.stream:
            self.keep(data)
            yield data
        self.check()

    def close(self):
        self.stream.close()

    async def aclose(self):
        await self.stream.aclose()


class Checked(httpx.BaseTransport):
    def __init__(self, witness, **options):
        self.witness, self.inner = witness, httpx.HTTPTransport(**options)

    def handle_request(self, request):
        operation = self.witness.of_request(request)
        response = self.inner.handle_request(request)
        if "content-type" not in response.headers:
            operation.check_answer(response.status_code, response.headers, b"")
            return response
        return httpx.Response(response.status_code, headers=response.headers, stream=Tee(operation, response))

    def close(self):
        self.inner.close()


class CheckedAsync(httpx.AsyncBaseTransport):
    def __init__(self, witness, **options):
        self.witness, self.inner = witness, httpx.AsyncHTTPTransport(**options)

    async def handle_async_request(self, request):
        operation = self.witness.of_request(request)
        response = await self.inner.handle_async_request(request)
        if "content-type" not in response.headers:
            operation.check_answer(response.status_code, response.headers, b"")
            return response
        return httpx.Response(response.status_code, headers=response.headers, stream=Tee(operation, response))

    async def aclose(self):
        await self.inner.aclose()
