// SPDX-License-Identifier: Apache-2.0
// Tests the test: the checks the Rust tests rely on do see a trace that loses slices, is cut off,
// or is wrong JSON.
import assert from 'node:assert/strict';
import {spawnSync} from 'node:child_process';
import fs from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import test from 'node:test';
import {fileURLToPath} from 'node:url';

const script = path.join(path.dirname(fileURLToPath(import.meta.url)), 'perfetto-sql.mjs');
const FIT = "select name, value from stats where severity in ('error','data_loss') and value != 0";
const scratch = fs.mkdtempSync(path.join(os.tmpdir(), 'gapprobe-perfetto-'));
process.on('exit', () => fs.rmSync(scratch, {recursive: true, force: true}));

function ask(name, text, ...queries) {
  const file = path.join(scratch, name);
  fs.writeFileSync(file, text);
  const run = spawnSync(process.execPath, [script, file, ...queries], {encoding: 'utf8'});
  return {code: run.status, talk: run.stderr, rows: run.stdout.split('\n').filter(Boolean).map(l => JSON.parse(l))};
}

const slice = (ts, dur) => ({ph: 'X', pid: 1, tid: 1, name: 'k', cat: 'kernel', ts, dur});
const trace = (events, extra = {}) => JSON.stringify({...extra, traceEvents: events});

test('a good trace is fit and keeps its nanoseconds', () => {
  const events = [slice(0, 1.001), slice(1.001, 2)];
  const text = trace(events).replace('{', '{"baseTimeNanoseconds":1795000000000000000,'); // the processor ignores it
  const {code, rows} = ask('good.json', text, FIT, 'select ts, dur from slice order by ts');
  assert.equal(code, 0);
  assert.deepEqual(rows[0], []);
  assert.deepEqual(rows[1], [{ts: 0, dur: 1001}, {ts: 1001, dur: 2000}]);
});

test('overlapping slices of one track are seen as lost', () => {
  const {rows} = ask('overlap.json', trace([slice(0, 10), slice(5, 10)]), FIT, 'select count(*) n from slice');
  assert.equal(rows[0].length, 1, JSON.stringify(rows[0]));
  assert.deepEqual(rows[1], [{n: 1}]);
});

test('a cut object and wrong SQL end with 1', () => {
  assert.equal(ask('cut.json', trace([slice(0, 1), slice(2, 1)]).slice(0, -20), FIT).code, 1);
  const {code, talk} = ask('sql.json', trace([slice(0, 1)]), 'select nonsense from nowhere');
  assert.equal(code, 1);
  assert.match(talk, /nowhere/);
});
