// SPDX-License-Identifier: Apache-2.0
// `gapprobe open` in Perfetto's real UI in a headless Chromium: the trace loads without an error,
// the why-idle track is pinned and on screen, the worst step is what the window shows, and another
// site gets nothing. The UI is of another origin than the trace, as ui.perfetto.dev is; Chromium's
// checks are on. What the server answers to whom: analyzer/cli/tests/cli/open.rs.
import assert from 'node:assert/strict';
import {spawn} from 'node:child_process';
import {once} from 'node:events';
import fs from 'node:fs';
import http from 'node:http';
import {createRequire} from 'node:module';
import net from 'node:net';
import os from 'node:os';
import path from 'node:path';
import test, {after, before} from 'node:test';
import {fileURLToPath, pathToFileURL} from 'node:url';

const tools = process.env.PERFETTO_UI;
const gapprobe = process.env.GAPPROBE_TEST_COMMAND;
const root = path.join(path.dirname(fileURLToPath(import.meta.url)), '..', '..');
const kept = name => path.join(root, 'analyzer', 'cli', 'tests', name);
const TYPES = {html: 'text/html', js: 'text/javascript', css: 'text/css', wasm: 'application/wasm', json: 'application/json'};
const PATIENCE = 90_000;

const require = createRequire(path.join(tools, 'package.json'));
const {chromium: playwright} = require('playwright-core');
const scratch = fs.mkdtempSync(path.join(os.tmpdir(), 'gapprobe-open-'));
let ui, other, browser;
const children = [];

/** Serves a folder at a free port, and an empty page; gives its origin. */
async function serve(folder) {
  const server = http.createServer((request, response) => {
    const name = new URL(request.url, 'http://x').pathname;
    if (name === '/empty') return response.writeHead(200, {'Content-Type': TYPES.html}).end();
    const file = path.join(folder, name === '/' ? 'index.html' : path.normalize(name));
    fs.readFile(file, (error, bytes) => {
      response.writeHead(error ? 404 : 200, {'Content-Type': TYPES[file.split('.').pop()] ?? 'application/octet-stream'});
      response.end(bytes);
    });
  });
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  return {origin: `http://127.0.0.1:${server.address().port}`, end: () => { server.closeAllConnections(); server.close(); }};
}

before(async () => {
  const {default: chromium} = await import(pathToFileURL(require.resolve('@sparticuz/chromium')));
  ui = await serve(path.join(tools, 'ui'));
  other = await serve(scratch);
  // its own arguments would switch the checks between sites off
  browser = await playwright.launch({executablePath: await chromium.executablePath(), args: ['--no-sandbox', '--disable-gpu']});
});

after(async () => {
  children.forEach(child => child.kill()); // of a test that failed
  await browser?.close();
  ui?.end();
  other?.end();
  fs.rmSync(scratch, {recursive: true, force: true});
});

/** Waits until nobody listens at the one port that Perfetto may ask: other checkouts test, too. */
async function untilFree(port) {
  for (const end = Date.now() + PATIENCE; Date.now() < end; await new Promise(r => setTimeout(r, 200))) {
    const server = net.createServer().listen(port, '127.0.0.1');
    const [event] = await Promise.race([once(server, 'listening').then(() => ['free']), once(server, 'error').then(() => ['taken'])]);
    server.close();
    if (event === 'free') return;
  }
  assert.fail(`something listens at port ${port} of this machine`);
}

/** `gapprobe open`: the URL that it printed, and how it ends. */
async function open(...args) {
  await untilFree(9001);
  const child = spawn(gapprobe, ['open', ...args, '--origin', ui.origin, '--print-url'], {cwd: scratch, stdio: ['ignore', 'pipe', 'pipe']});
  children.push(child);
  const said = [];
  child.stderr.on('data', text => said.push(text));
  const ended = once(child, 'close').then(([code]) => ({code, said: said.join('')}));
  const [url] = await Promise.race([once(child.stdout, 'data'), ended.then(e => assert.fail(JSON.stringify(e)))]);
  return {url: String(url).trim(), ended, child};
}

/** What the page shows once the trace is loaded and nothing is under way. */
async function look(url) {
  const page = await browser.newPage({viewport: {width: 1400, height: 800}});
  const errors = [];
  page.on('pageerror', error => errors.push(String(error)));
  await page.goto(url);
  await page.waitForFunction(() => globalThis.app?.trace?.workspace.pinnedTracks.length > 0, null, {timeout: PATIENCE});
  await page.evaluate(() => globalThis.waitForPerfettoIdle());
  const seen = await page.evaluate(() => {
    const trace = globalThis.app.trace;
    const window = trace.timeline.visibleWindow.toTimeSpan();
    return {
      title: document.title,
      errors: [...trace.loadingErrors, ...(trace.traceInfo.importErrors ? [`${trace.traceInfo.importErrors} import errors`] : [])],
      dialog: document.querySelector('.pf-modal-dialog, .modal-dialog')?.textContent,
      pinned: trace.workspace.pinnedTracks.filter(track => track.uri.startsWith('/slice')).map(track => track.name),
      window: [String(window.start), String(window.end)],
    };
  });
  const label = page.getByText(/^why idle \d+$/).first();
  seen.box = await label.boundingBox();
  seen.errors.push(...errors);
  await page.close();
  return seen;
}

for (const [what, file, name] of [
  ['a recording', 'recordings/own_gpt_item.gprec.gz', 'own_gpt_item.gapprobe.json.gz'],
  ["torch.profiler's trace", 'traces/h200_gptsync.json.gz', 'h200_gptsync.gapprobe.json.gz'],
]) {
  test(`${what} is in view with its idle track pinned`, {timeout: 2 * PATIENCE}, async () => {
    const {url, ended} = await open(kept(file));
    const seen = await look(url);
    const {code, said} = await ended;
    assert.equal(code, 0, said);
    assert.ok(seen.title.startsWith(name), seen.title);
    assert.deepEqual(seen.errors, []);
    assert.equal(seen.dialog, undefined);
    assert.deepEqual(seen.pinned.map(track => track.replace(/ \d+$/, '')), ['steps', 'why idle']);
    const asked = new URLSearchParams(url.split('/#!/?')[1]);
    const [from, to] = seen.window.map(BigInt);
    const [begin, end] = [BigInt(asked.get('visStart')), BigInt(asked.get('visEnd'))];
    // Perfetto keeps times of the window as fractions: a nanosecond more or less
    assert.ok(from - begin <= 1n && begin - from <= 1n && to - end <= 1n && end - to <= 1n, `${seen.window} is not ${begin} to ${end}`);
    assert.ok(seen.box && seen.box.y > 0 && seen.box.y < 300, `the idle track is on top: ${JSON.stringify(seen.box)}`);
  });
}

test('another site gets nothing, and the page still does', {timeout: 2 * PATIENCE}, async () => {
  const {url, ended, child} = await open(kept('recordings/own_gpt_item.gprec.gz'));
  const trace = new URLSearchParams(url.split('/#!/?')[1]).get('url');
  const read = async origin => {
    const page = await browser.newPage();
    await page.goto(`${origin}/empty`);
    const got = await page.evaluate(u => fetch(u).then(r => r.arrayBuffer()).then(b => b.byteLength, () => 'refused'), trace);
    await page.close();
    return got;
  };
  assert.equal(await read(other.origin), 'refused');
  assert.equal(child.exitCode, null, 'it waits on');
  assert.ok(await read(ui.origin) > 10_000);
  assert.equal((await ended).code, 0);
});
