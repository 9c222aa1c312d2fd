// What an MCP host does with the official packages of JavaScript: sdk_cases.mjs DIRECTORY, where npm has installed
// @modelcontextprotocol/client or @modelcontextprotocol/sdk. Started by sdk_test.py.
import assert from 'node:assert/strict'
import path from 'node:path'
import { createRequire } from 'node:module'
import { pathToFileURL } from 'node:url'

const [directory] = process.argv.slice(2)
const release = path.basename(directory)
const require = createRequire(directory + '/')
const load = (name) => import(pathToFileURL(require.resolve(name)).href)
const first = release.includes('sdk')
const { Client, StreamableHTTPClientTransport: OfClient } = await load(
  first ? '@modelcontextprotocol/sdk/client/index.js' : '@modelcontextprotocol/client')
const Transport = OfClient ?? (await load('@modelcontextprotocol/sdk/client/streamableHttp.js')).StreamableHTTPClientTransport
const { StdioClientTransport } = await load(
  first ? '@modelcontextprotocol/sdk/client/stdio.js' : '@modelcontextprotocol/client/stdio')
const { ISOGATE_URL: url, ISOGATE_TEST_KEY: key, ISOGATE_TEST_KEY_FILE: keyFile, ISOGATE_TEST_PROGRAM: isogate } = process.env
const headers = { Authorization: `Bearer ${key}` }
const sleep = (ms) => new Promise((done) => setTimeout(done, ms))
const running = async (agent) => {
  const { sandboxes } = await (await fetch(`${url}/sandboxes`, { headers })).json()
  return sandboxes.find((each) => each.agent_id === agent)?.running_execs ?? 0
}

let client, agent
const call = (name, args, options) =>
  first ? client.callTool({ name, arguments: args }, undefined, options) : client.callTool({ name, arguments: args }, options)
const cases = {
  async 'an agent writes, runs and mends a file'() {
    await call('write_file', { path: 'a/hello.sh', content: 'echo helo\n' })
    await call('edit_file', { path: 'a/hello.sh', old_text: 'helo', new_text: 'hello 猫' })
    const ran = await call('exec', { command: 'sh a/hello.sh' })
    assert.deepEqual([ran.isError, ran.structuredContent.stdout], [false, 'hello 猫\n'])
    const bad = await call('exec', { command: 'echo why >&2; exit 3' })
    assert.deepEqual([bad.isError, bad.structuredContent.exit_code, bad.structuredContent.stderr], [true, 3, 'why\n'])
    const found = await call('search_files', { pattern: 'hello' })
    assert.equal(found.structuredContent.matches[0].path, 'a/hello.sh')
    const listed = await call('list_files', { path: 'a' })
    assert.equal(listed.structuredContent.entries[0].name, 'hello.sh')
    assert.equal((await call('read_file', { path: 'a/hello.sh' })).structuredContent.content, 'echo hello 猫\n')
  },
  async 'what is refused is a result, and an unknown tool an error with its code'() {
    const none = await call('read_file', { path: 'none' })
    assert(none.isError && none.content[0].text.includes('file_not_found'))
    await assert.rejects(call('no_such_tool', {}), (error) => error.code === -32602)
  },
  async 'progress is told while output comes'() {
    const told = []
    const result = call('exec', { command: 'echo begun; until [ -e go ]; do sleep 0.1; done; echo done' },
      { onprogress: (each) => told.push(each), timeout: 120000 })
    while (!told.length) await sleep(20)
    assert.equal(told[0].message, 'begun\n')
    await call('write_file', { path: 'go', content: '' })
    assert.equal((await result).structuredContent.stdout, 'begun\ndone\n')
  },
  async 'much output comes whole to its bound'() {
    const much = await call('exec', { command: 'head -c 98304 /dev/zero | tr "\\0" x', max_output_bytes: 98304 },
      { onprogress: () => {} })
    assert.equal(much.structuredContent.stdout.length, 98304)
  },
  async 'a call that is given up ends its program, where the protocol can say so'({ cancels }) {
    await call('exec', { command: 'true' })
    const stop = new AbortController()
    const given = call('exec', { command: 'sleep 1000' }, { signal: stop.signal })
    while ((await running(agent)) === 0) await sleep(50)
    stop.abort('enough')
    await assert.rejects(given)
    for (let i = 0; cancels && (await running(agent)) > 0; ++i) {
      assert(i < 600)
      await sleep(100)
    }
  },
  async 'the end'() {
    assert.equal((await call('end_sandbox', { purge: true })).isError, false)
    assert.equal((await call('sandbox_status', {})).structuredContent.exists, false)
  },
}

const http = () => new Transport(new URL(`${url}/mcp/${agent}`), { requestInit: { headers } })
const stdio = () => new StdioClientTransport({
  command: isogate, args: ['mcp', '--stdio', '--url', url, '--key-file', keyFile, '--agent', agent] })
const ways = first
  ? [['http of 2025', http, undefined, false], ['stdio of 2025', stdio, undefined, true]]
  : [['http of 2025', http, undefined, false], ['http of either', http, 'auto', true],
     ['http of 2026', http, { pin: '2026-07-28' }, true], ['stdio of either', stdio, 'auto', true]]
let failed = 0
for (const [way, transport, mode, cancels] of ways) {
  agent = `mcp-${process.pid}-${way.replaceAll(' ', '-')}`
  client = new Client({ name: 'cases', version: '1' }, mode ? { versionNegotiation: { mode } } : {})
  const errors = []
  client.onerror = (error) => errors.push(error.message)
  await client.connect(transport())
  assert.equal(client.getServerVersion().name, 'isogate')
  assert.equal((await client.listTools()).tools.length, 8)
  for (const [name, work] of Object.entries(cases)) {
    try {
      await work({ cancels })
      console.log(`${release} ${way}: ${name}: ok`)
    } catch (error) {
      ++failed
      console.log(`${release} ${way}: ${name}: FAILED`, error)
    }
  }
  await client.close()
  if (errors.length && !errors.every((each) => /abort|unknown message ID/i.test(each))) {
    ++failed
    console.log(`${release} ${way}: FAILED, errors beside the calls:`, errors)
  }
}
await assert.rejects(new Client({ name: 'cases', version: '1' }).connect(new Transport(new URL(`${url}/mcp`))))
process.exit(failed ? 1 : 0)
