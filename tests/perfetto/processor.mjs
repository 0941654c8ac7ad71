// SPDX-License-Identifier: Apache-2.0
// Perfetto's trace processor (v55.3, wasm) in Node: loads a trace file, answers SQL. Offline;
// assets by scripts/perfetto. The engine is made for a browser worker: it gets a worker's globals,
// a message channel and the wasm bytes from here.
import fs from 'node:fs';
import path from 'node:path';
import vm from 'node:vm';
import {fileURLToPath, pathToFileURL} from 'node:url';

const here = path.dirname(fileURLToPath(import.meta.url));
const CHUNK = 32 << 20;

/** Where scripts/perfetto puts the engine. */
export function assetsFolder() {
  return process.env.TP_ASSETS
    ?? path.join(process.env.GAPPROBE_TOOLS ?? path.join(here, '..', '..', '.tools'), 'perfetto');
}

/** Starts an engine: {load(path), query(sql), heapBytes(), close()}. One engine a process, one
 * trace an engine. */
export async function startProcessor() {
  const assets = assetsFolder();
  if (!fs.existsSync(path.join(assets, 'trace_processor.wasm'))) {
    throw new Error(`Perfetto's trace processor is not in ${assets}\nhint: scripts/perfetto install`);
  }
  // The engine warns of result fields newer than its reader; they are not for us.
  const warn = console.warn.bind(console);
  console.warn = (...a) => { if (!/Unexpected QueryResult field/.test(JSON.stringify(a[0] ?? ''))) warn(...a); };
  globalThis.self = globalThis;
  globalThis.WorkerGlobalScope ??= function WorkerGlobalScope() {};
  if (!globalThis.location) globalThis.location = {href: pathToFileURL(assets).href + '/'};

  let ready;
  const started = new Promise(resolve => { ready = resolve; });
  globalThis.__tp = {wasm: new Uint8Array(fs.readFileSync(path.join(assets, 'trace_processor.wasm'))), ready};
  let glue = fs.readFileSync(path.join(assets, 'engine_bundle.node.js'), 'utf8');
  for (const [anchor, replacement] of [
    ['this.useMemory64 = hasMemory64Support();', 'this.useMemory64 = false;'],
    ['locateFile: (s) => s,', 'locateFile: (s) => s, wasmBinary: globalThis.__tp.wasm,'],
    ['[fn, REQ_BUF_SIZE]));', '[fn, REQ_BUF_SIZE])); globalThis.__tp.ready();'],
    ['const wasmBridge = new wasm_bridge_1.WasmBridge();',
      'const wasmBridge = globalThis.__tp.bridge = new wasm_bridge_1.WasmBridge();'],
  ]) {
    if (!glue.includes(anchor)) throw new Error('the engine is not the one expected, anchor missing: ' + anchor);
    glue = glue.replace(anchor, replacement);
  }
  vm.runInThisContext(glue, {filename: 'engine_bundle.patched.js'});
  await started;

  const {EngineBase} = await import(pathToFileURL(path.join(assets, 'engine.mjs')).href);
  const bridge = globalThis.__tp.bridge;
  const channel = new MessageChannel();
  bridge.initialize(channel.port1);
  class Engine extends EngineBase {
    mode = 'WASM';
    id = 'gapprobe';
    rpcSendRequestBytes(bytes) { channel.port2.postMessage(bytes); }
    [Symbol.dispose ?? Symbol('dispose')]() { channel.port2.close(); channel.port1.close(); }
  }
  const engine = new Engine();
  channel.port2.onmessage = message => engine.onRpcResponseBytes(message.data);

  return {
    async load(file) {
      const fd = fs.openSync(file, 'r');
      try {
        for (let at = 0;;) {
          const buffer = Buffer.allocUnsafeSlow(CHUNK);
          const n = fs.readSync(fd, buffer, 0, CHUNK, at);
          if (n === 0) break;
          at += n;
          await engine.parse(new Uint8Array(buffer.buffer, 0, n)); // gunzips by itself
        }
      } finally {
        fs.closeSync(fd);
      }
      await engine.notifyEof();
    },
    async query(sql) {
      const result = await engine.query(sql);
      const error = result.error?.();
      if (error) throw new Error('SQL error: ' + error);
      const columns = result.columns();
      const rows = [];
      for (const it = result.iter({}); it.valid(); it.next()) {
        rows.push(Object.fromEntries(columns.map(c => [c, cell(it.get(c))])));
      }
      return rows;
    },
    heapBytes: () => bridge.connection.HEAPU8.length,
    close() { channel.port2.close(); channel.port1.close(); },
  };
}

/** Whole numbers as numbers where a double holds them, else as text: nanoseconds since 1970 do not
 * fit a double. */
function cell(value) {
  if (typeof value !== 'bigint') return value;
  return Number.isSafeInteger(Number(value)) ? Number(value) : value.toString();
}
