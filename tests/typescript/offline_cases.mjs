// What the client does without a gateway. Started by typescript_test.py, in the directory of the client that was built.
import assert from "node:assert/strict";
import { test } from "node:test";
import { pathToFileURL } from "node:url";

const { connect, dataOf, IsogateError } = await import(pathToFileURL(`${process.cwd()}/dist/src/index.js`).href);

delete process.env.ISOGATE_KEY;
delete process.env.ISOGATE_URL;

/** What the client asks of a gateway that gives this answer. */
function scripted(options, answer = () => Response.json({})) {
  const asked = [];
  const gateway = connect({ ...options, fetch: async (request) => (asked.push(request), answer()) });
  return { gateway, asked };
}

async function askedAt(options) {
  const { gateway, asked } = scripted(options);
  await gateway.GET("/healthz");
  return asked[0].url;
}

test("the gateway is found as the command finds it", async () => {
  assert.equal(await askedAt({}), "http://127.0.0.1:9090/healthz");
  assert.equal(await askedAt({ url: "" }), "http://127.0.0.1:9090/healthz");
  process.env.ISOGATE_URL = "http://gw";
  assert.equal(await askedAt({}), "http://gw:9090/healthz");
  process.env.ISOGATE_URL = "";
  assert.equal(await askedAt({}), "http://127.0.0.1:9090/healthz");
  assert.equal(await askedAt({ url: "http://gw:80/" }), "http://gw/healthz");
  assert.equal(await askedAt({ url: "https://[::1]" }), "https://[::1]:9090/healthz");
});

test("a url that cannot be used is refused, and not quoted", () => {
  for (const url of ["unix:/run/secret.sock", "ftp://secret", "http://secret@gw", "http://gw/secret", "http://gw:secret"]) {
    assert.throws(() => connect({ url }), (error) => !error.message.includes("secret"), url);
  }
});

test("a key goes to no other place", async () => {
  const { gateway, asked } = scripted({ key: "k" });
  await gateway.GET("/healthz");
  assert.equal(asked[0].headers.get("authorization"), "Bearer k");
  assert.equal(asked[0].redirect, "error");
});

test("an empty file is no failure", async () => {
  const { gateway } = scripted({}, () => new Response("", { headers: { "Content-Length": "0" } }));
  const params = { path: { agent_id: "a", path: "empty" } };
  assert.equal(dataOf(await gateway.GET("/workspace/files/{agent_id}/{path}", { params, parseAs: "text" })), undefined);
});

test("a refusal of a HEAD is an error with the code of its status", async () => {
  const { gateway } = scripted({}, () => new Response(null, { status: 404, headers: { "X-Request-Id": "r1" } }));
  const answer = await gateway.HEAD("/workspace/files/{agent_id}/{path}", { params: { path: { agent_id: "a", path: "f" } } });
  assert.throws(() => dataOf(answer), (thrown) => thrown.code === "file_not_found" && thrown.requestId === "r1");
});

test("a failure that is not the gateway's is no refusal", async () => {
  const { gateway } = scripted({}, () => new Response("<html>", { status: 404, headers: { "X-Request-Id": "r1" } }));
  const answer = await gateway.GET("/sandboxes");
  assert.throws(() => dataOf(answer), (thrown) => !(thrown instanceof IsogateError));
});

test("a refusal is an error with its code", async () => {
  const error = { code: "rate_limited", message: "too much", retryable: true, details: {} };
  const { gateway } = scripted({}, () => Response.json({ error, request_id: "r1" }, { status: 429 }));
  const answer = await gateway.GET("/sandboxes");
  assert.throws(() => dataOf(answer), (thrown) => thrown instanceof IsogateError && thrown.code === "rate_limited");
});

test("content is sent as it is, and any other body as JSON", async () => {
  const { gateway, asked } = scripted({});
  const params = { path: { agent_id: "a", path: "f" } };
  const bytes = new Uint8Array([0, 255]);
  for (const body of [bytes, bytes.buffer, Buffer.from(bytes), new Blob([bytes]), new Response(bytes).body])
    await gateway.PUT("/workspace/files/{agent_id}/{path}", { params, body, duplex: "half" });
  for (const request of asked) assert.deepEqual(new Uint8Array(await request.arrayBuffer()), bytes);
  await gateway.PUT("/workspace/files/{agent_id}/{path}", { params, body: "text\n" });
  await gateway.POST("/exec", { body: { argv: ["id"] } });
  assert.deepEqual(await Promise.all(asked.slice(-2).map((request) => request.text())), ["text\n", '{"argv":["id"]}']);
});
