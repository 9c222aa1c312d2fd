// A client of the isogate gateway. The calls are openapi-fetch's; their types are generated from docs/openapi.json
// (`npm run generate`, src/api.ts). What is written by hand here: which gateway, errors, and streams of events.
import createClient, { type Client, type ClientOptions } from "openapi-fetch";
import type { components, paths } from "./api.js";

export type { components, paths } from "./api.js";

type Schemas = components["schemas"];
export type ExecResult = Schemas["ExecResult"];
export type ExecState = Schemas["ExecState"];
export type StreamEvent = Schemas["StreamEvent"];

export interface Options {
  /** http(s)://HOST[:PORT], port 9090 if it names none; else ISOGATE_URL, else http://127.0.0.1:9090. */
  url?: string;
  /** An API key; else ISOGATE_KEY. */
  key?: string;
  /** In place of Node's own, which gives up after 300 s without a response. */
  fetch?: NonNullable<ClientOptions["fetch"]>;
}

/** A gateway: `gateway.POST("/exec", …)` and every other call of the document. No call is repeated. */
export function connect(options: Options = {}): Client<paths> {
  const key = options.key || process.env.ISOGATE_KEY;
  return createClient<paths>({
    baseUrl: baseUrlOf(options.url || process.env.ISOGATE_URL || "http://127.0.0.1:9090"),
    redirect: "error",
    bodySerializer: serialized,
    ...(options.fetch ? { fetch: options.fetch } : {}),
    ...(key ? { headers: { Authorization: `Bearer ${key}` } } : {}),
  });
}

// Content goes as it is; every other body is JSON, and an object.
function serialized(body: unknown): unknown {
  const isContent = typeof body === "string" || ArrayBuffer.isView(body) ||
    [ArrayBuffer, Blob, ReadableStream].some((kind) => body instanceof kind);
  return isContent ? body : JSON.stringify(body);
}

// The url is not quoted: it may contain a password.
function baseUrlOf(url: string): string {
  if (url.startsWith("unix:")) throw new Error("cannot use the url of the gateway: this client has no Unix sockets");
  const parts = /^(https?:\/\/(?:\[[0-9a-f:.]+\]|[^:/?#@[\]\s]+))(:\d+)?\/?$/i.exec(url);
  if (!parts) throw new Error("cannot use the url of the gateway: give http://HOST:PORT or https://HOST:PORT");
  return `${parts[1]}${parts[2] ?? ":9090"}`;
}

/** A refusal by the gateway: its error object. */
export class IsogateError extends Error {
  constructor(
    /** Stable; see ErrorCode of the document. */
    readonly code: string,
    message: string,
    readonly status: number,
    /** Names the line in the gateway's log. */
    readonly requestId: string,
    /** The same request may succeed later. */
    readonly retryable: boolean,
    readonly details: unknown,
  ) {
    super(`${message} (${code}; request ${requestId})`);
    this.name = "IsogateError";
  }
}

// For a HEAD, whose refusal has no error object: the most general code of the status.
const codesOfHead: Record<number, Schemas["ErrorCode"]> = {
  400: "invalid_request", 401: "unauthenticated", 403: "permission_denied", 404: "file_not_found", 409: "is_directory",
  410: "sandbox_lost", 421: "misdirected_request", 429: "rate_limited", 500: "internal",
  501: "unsupported", 502: "outcome_unknown", 503: "backend_unavailable", 507: "quota_exceeded",
};

/** The data of a response; throws IsogateError if it is a refusal. For an empty file, and a HEAD, it is undefined. */
export function dataOf<T>(answer: { data?: T; error?: unknown; response: Response }): T {
  const { ok, status, headers, url } = answer.response;
  if (ok) return answer.data as T;
  const refusal = answer.error as Partial<Schemas["Error"]> | undefined;
  const error = refusal?.error;
  const requestId = refusal?.request_id ?? headers.get("x-request-id") ?? "";
  if (error) throw new IsogateError(error.code, error.message, status, requestId, error.retryable, error.details);
  const code = codesOfHead[status];
  if (!code || !requestId || answer.error !== undefined) {
    throw new Error(`status ${status} without an error object: is this an isogate gateway?`);
  }
  const message = `refused with status ${status}: ${url}`;
  throw new IsogateError(code, message, status, requestId, headers.has("retry-after"), {});
}

/** Whether a response of `/exec` is a result: the program has ended. Otherwise it is the state of a long-lived exec. */
export function hasEnded(answer: ExecResult | ExecState): answer is ExecResult {
  return "stdout_encoding" in answer;
}

/** The bytes of a member that is text or base64. */
export function bytesOf(text: string, encoding: Schemas["Encoding"]): Uint8Array {
  return Buffer.from(text, encoding === "base64" ? "base64" : "utf8");
}

/**
 * The events of `/exec-stream` (called with `parseAs: "stream"`), to the last, which is `exit`. Leaving the loop closes the
 * connection, which kills the program. Throws if the stream ends too early: the program's end is not known.
 */
export async function* events(body: ReadableStream<Uint8Array> | null): AsyncGenerator<StreamEvent> {
  if (!body) throw new Error("the answer has no body");
  const decoder = new TextDecoder();
  const reader = body.getReader();
  let rest = "";
  let ended = false;
  try {
    for (;;) {
      const { done, value } = await reader.read();
      if (done) break;
      const lines = (rest + decoder.decode(value, { stream: true })).split("\n");
      rest = lines.pop() ?? "";
      for (const line of lines) {
        const event = JSON.parse(line) as StreamEvent;
        ended = event.event === "exit";
        yield event;
      }
    }
    if (!ended) throw new Error("the stream ended without an exit event: what became of the program is not known");
  } finally {
    await reader.cancel().catch(() => undefined);
  }
}
