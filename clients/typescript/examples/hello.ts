// Writes a file into the sandbox of an agent, runs a program there, follows the output of another, and ends the sandbox.
import { bytesOf, connect, dataOf, events, hasEnded, IsogateError } from "../src/index.js";

const gateway = connect();
const agent_id = "typescript-hello";

dataOf(await gateway.POST("/workspace/write", { body: { agent_id, path: "name.txt", content: "TypeScript\n" } }));

const done = dataOf(await gateway.POST("/exec", { body: { agent_id, command: 'echo "hello from $(cat name.txt)"; exit 3' } }));
if (hasEnded(done)) console.log(`${done.stdout.trim()}: ${done.outcome} with ${done.exit_code}`);

const stream = dataOf(
  await gateway.POST("/exec-stream", { body: { agent_id, argv: ["seq", "3"], lines: true }, parseAs: "stream" }));
for await (const event of events(stream)) {
  if (event.event === "stdout") console.log("line", Buffer.from(bytesOf(event.data, event.encoding)).toString());
  if (event.event === "exit") console.log("ended:", event.outcome);
}

try {
  dataOf(await gateway.POST("/workspace/read", { body: { agent_id, path: "not/there" } }));
} catch (error) {
  if (!(error instanceof IsogateError)) throw error;
  console.log("refused:", error.code);
}

dataOf(await gateway.DELETE("/sandboxes/{agent_id}", { params: { path: { agent_id }, query: { purge: true } } }));
