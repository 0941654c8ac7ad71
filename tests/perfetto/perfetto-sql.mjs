// SPDX-License-Identifier: Apache-2.0
// node perfetto-sql.mjs TRACE.json[.gz] "select ..." ["select ..."]   one line of JSON a query on
// stdout, talk on stderr.
// Exit 1 where the trace does not load or a query is wrong. Assets: scripts/perfetto install.
// A trace is fit when this prints []:
//   "select name,value from stats where severity in ('error','data_loss') and value!=0"
import fs from 'node:fs';
import {startProcessor} from './processor.mjs';

const [file, ...queries] = process.argv.slice(2);
if (!file) {
  console.error('usage: node perfetto-sql.mjs TRACE.json[.gz] "select ..." ...');
  process.exit(2);
}
const seconds = since => ((performance.now() - since) / 1e3).toFixed(3);
try {
  const processor = await startProcessor();
  const begin = performance.now();
  await processor.load(file);
  const megabytes = n => (n / 1e6).toFixed(1);
  console.error(`[perfetto] loaded ${megabytes(fs.statSync(file).size)} MB in ${seconds(begin)} s, `
    + `wasm heap ${megabytes(processor.heapBytes())} MB`);
  for (const query of queries) console.log(JSON.stringify(await processor.query(query)));
  processor.close();
} catch (error) {
  console.error(`[perfetto] ${file}: ${error.message}`);
  process.exit(1);
}
