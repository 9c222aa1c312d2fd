// What a program does with E2B's SDK for JavaScript, where it differs from that for Python in what it sends and reads:
// sdk_cases.mjs DIRECTORY, where npm has installed a release. Started by sdk_test.py.
import assert from 'node:assert/strict'
import { createHash } from 'node:crypto'
import http from 'node:http'
import { createRequire } from 'node:module'
import path from 'node:path'

const [directory] = process.argv.slice(2)
const release = path.basename(directory)
const { Sandbox, CommandExitError, NotFoundError, SandboxError, TimeoutError, AuthenticationError, InvalidArgumentError } =
  createRequire(directory + '/')('e2b')
const capabilities = process.env.ISOGATE_TEST_CAPABILITIES.split(' ')
const mark = `${process.pid}-${Date.now()}`
const metadata = { mark, of: 'a & b=c+d' }
const sha256 = (data) => createHash('sha256').update(data).digest('hex')
const sleep = (ms) => new Promise((done) => setTimeout(done, ms))
const eventually = async (holds, seconds = 20) => {
  for (const until = Date.now() + seconds * 1000; ; await sleep(50)) {
    if (await holds()) return true
    if (Date.now() > until) return false
  }
}

let box
const cases = {
  async 'a command has its environment, its output and its exit code'() {
    const said = []
    const result = await box.commands.run('echo "$OF_SANDBOX, $OF_COMMAND"; echo err >&2', {
      envs: { OF_COMMAND: 'ž 猫' },
      onStdout: (text) => void said.push(text),
    })
    assert.deepEqual([result.stdout, result.stderr, result.exitCode], ['of sandbox, ž 猫\n', 'err\n', 0])
    assert.equal(said.join(''), result.stdout)
    await assert.rejects(box.commands.run('echo out; exit 3'), (error) => {
      assert(error instanceof CommandExitError)
      assert.deepEqual([error.exitCode, error.stdout], [3, 'out\n'])
      return true
    })
  },
  async 'a command is ended at its timeout'() {
    await assert.rejects(box.commands.run('sleep 61', { timeoutMs: 1000 }), TimeoutError)
    assert(await eventually(async () => (await box.commands.list()).length === 0))
  },
  async 'stdin, the list of processes and connecting again'() {
    const handle = await box.commands.run('read -r line; echo got $line', { background: true, stdin: true })
    const listed = (await box.commands.list()).find((each) => each.pid === handle.pid)
    assert.deepEqual([listed.cmd, listed.args[2]], ['/bin/bash', 'read -r line; echo got $line'])
    await handle.disconnect()
    const again = await (await Sandbox.connect(box.sandboxId)).commands.connect(handle.pid)
    await box.commands.sendStdin(handle.pid, 'it\n')
    assert.equal((await again.wait()).stdout, 'got it\n')
    await assert.rejects(box.commands.connect(1), NotFoundError)
  },
  async 'a killed command says so'() {
    const handle = await box.commands.run('sleep 62', { background: true })
    assert.equal(await box.commands.kill(handle.pid), true)
    await assert.rejects(handle.wait(), CommandExitError)
    assert.equal(await box.commands.kill(handle.pid), false)
  },
  async 'a terminal has its size, its input and its end'() {
    let said = ''
    const handle = await box.pty.create({ cols: 80, rows: 24, onData: (data) => void (said += Buffer.from(data).toString()) })
    const send = (text) => box.pty.sendInput(handle.pid, new TextEncoder().encode(text))
    await send('stty size\n')
    assert(await eventually(() => said.includes('24 80')), said)
    await box.pty.resize(handle.pid, { cols: 101, rows: 40 })
    await send('stty size; exit\n')
    assert.equal((await handle.wait()).exitCode, 0)
    assert(said.includes('40 101'), said)
  },
  async 'files of every shape'() {
    const bytes = new Uint8Array(Array.from({ length: 3 << 20 }, (_, i) => (i * 31 + (i >> 8)) & 255))
    await box.files.write('f/text', 'žluťoučký 猫')
    await box.files.write('f/a b+c ž', bytes.buffer)
    await box.files.write('f/empty', '')
    await box.files.write('f/blob', new Blob(['of a ', 'blob']))
    await box.files.write([{ path: 'f/many/1', data: '1' }, { path: 'f/many/2', data: '2' }])
    assert.equal(await box.files.read('f/text'), 'žluťoučký 猫')
    assert.equal(sha256(await box.files.read('f/a b+c ž', { format: 'bytes' })), sha256(bytes))
    assert.equal(await box.files.read('f/empty'), '')
    assert.equal(await (await box.files.read('f/blob', { format: 'blob' })).text(), 'of a blob')
    assert.deepEqual((await box.files.list('f', { depth: 2 })).map((each) => each.name),
      ['a b+c ž', 'blob', 'empty', 'many', '1', '2', 'text'])
    await assert.rejects(box.files.read('f/missing'), NotFoundError)
    await assert.rejects(box.files.read('f'), InvalidArgumentError)
  },
  async 'a file of a hundred megabytes'() {
    const data = Buffer.alloc(100 << 20, 'noise of a prime length ')
    await box.files.write('big', new Blob([data]), { requestTimeoutMs: 120000 })
    const said = await box.commands.run('sha256sum big')
    assert.equal(said.stdout.split(' ')[0], sha256(data))
    const of = createHash('sha256')
    for await (const piece of await box.files.read('big', { format: 'stream', requestTimeoutMs: 120000 })) of.update(piece)
    assert.equal(of.digest('hex'), sha256(data))
    await box.files.remove('big')
  },
  async 'directories, and what a file says'() {
    assert.equal(await box.files.makeDir('d/sub'), true)
    assert.equal(await box.files.makeDir('d/sub'), false)
    await box.files.write('d/sub/x', '12345')
    const moved = await box.files.rename('d/sub/x', 'd/y')
    assert.deepEqual([moved.name, moved.type], ['y', 'file'])
    const info = await box.files.getInfo('d/y')
    assert.deepEqual([info.size, info.permissions], [5, '-rw-r--r--'])
    assert(info.modifiedTime instanceof Date && Math.abs(info.modifiedTime - Date.now()) < 120000)
    await box.files.remove('d')
    assert.equal(await box.files.exists('d'), false)
  },
  async 'signed URLs'() {
    await box.files.write('ž & +', 'signed')
    const url = await box.downloadUrl('ž & +', { useSignatureExpiration: 60000 })
    assert.equal(await (await fetch(url)).text(), 'signed')
    assert.notEqual((await fetch(url.replace(/signature=v1_../, 'signature=v1_xx'))).status, 200)
    const form = new FormData()
    form.append('file', new Blob(['by a form']), 'any')
    const sent = await fetch(await box.uploadUrl('up', { useSignatureExpiration: 60000 }), { method: 'POST', body: form })
    assert.equal(sent.status, 200, await sent.text())
    assert.equal(await box.files.read('up'), 'by a form')
  },
  async 'a watch calls back'() {
    if (!capabilities.includes('watch')) return 'this backend has no watches'
    await box.files.makeDir('w')
    const seen = []
    const watch = await box.files.watchDir('w', (event) => void seen.push(`${event.type} ${event.name}`), { recursive: true })
    await box.files.write('w/sub/x', '1')
    assert(await eventually(() => seen.includes('create sub/x')), seen.join())
    await watch.stop()
  },
  async 'a port is reached by its host'() {
    if (!capabilities.includes('ports')) return 'this backend does not reach ports'
    await box.files.write('served/index.html', 'from within')
    const server = await box.commands.run('exec python3 -m http.server 8125', { cwd: 'served', background: true, timeoutMs: 0 })
    const url = new URL(process.env.E2B_API_URL)
    const ask = () => new Promise((done, fail) => {
      const headers = { host: box.getHost(8125), 'e2b-traffic-access-token': box.trafficAccessToken }
      http.get({ host: url.hostname, port: url.port, headers }, async (answer) => {
        let body = ''
        for await (const piece of answer) body += piece
        done(`${answer.statusCode} ${body}`)
      }).on('error', fail)
    })
    assert(await eventually(async () => (await ask()) === '200 from within'), await ask())
    await server.kill()
  },
  async 'sandboxes are found by their metadata'() {
    assert.equal((await box.commands.run('echo')).exitCode, 0)
    const found = await Sandbox.list({ query: { metadata } }).nextItems()
    assert.deepEqual(found.map((each) => each.sandboxId), [box.sandboxId])
    assert.deepEqual(found[0].metadata, metadata)
    assert.deepEqual(await Sandbox.list({ query: { metadata: { mark, of: 'other' } } }).nextItems(), [])
    await box.setTimeout(300000)
    const info = await Sandbox.getInfo(box.sandboxId)
    assert(info.endAt - Date.now() > 200000)
  },
  async 'a killed sandbox is gone'() {
    const other = await Sandbox.create({ timeoutMs: 60000 })
    assert.equal(await other.isRunning(), true)
    const handle = await other.commands.run('sleep 63', { background: true })
    const ended = assert.rejects(handle.wait(), SandboxError)
    await other.kill()
    await ended
    assert.equal(await other.isRunning(), false)
    await assert.rejects(other.commands.run('true'), (error) => error instanceof TimeoutError || error instanceof NotFoundError)
    await assert.rejects(other.files.read('x'), SandboxError)
    await assert.rejects(Sandbox.connect(other.sandboxId), NotFoundError)
    assert.equal(await Sandbox.kill(other.sandboxId), false)
  },
  async 'a sandbox ends at its timeout'() {
    const other = await Sandbox.create({ timeoutMs: 60000 })
    await other.setTimeout(1000)
    assert(await eventually(async () => !(await other.isRunning())))
  },
  async 'refusals are the errors of the SDK'() {
    await assert.rejects(Sandbox.create({ apiKey: 'e2b_' + '0'.repeat(64) }), AuthenticationError)
    await assert.rejects(Sandbox.create('no-such-template'), /no-such-template/)
    await assert.rejects(box.betaPause(), SandboxError)
  },
}

let failed = 0, skipped = 0
box = await Sandbox.create({ timeoutMs: 600000, metadata, envs: { OF_SANDBOX: 'of sandbox' } })
for (const [name, each] of Object.entries(cases)) {
  try {
    const reason = await each()
    if (reason) skipped += 1
    console.log(`${name} ... ${reason ? `skipped: ${reason}` : 'ok'}`)
  } catch (error) {
    failed += 1
    console.log(`${name} ... FAIL`, error)
  }
}
await box.kill()
console.log(`${release}: ${Object.keys(cases).length} cases, ${skipped} skipped, ${failed} failed`)
process.exit(failed === 0 ? 0 : 1)
