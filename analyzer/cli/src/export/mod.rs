// SPDX-License-Identifier: Apache-2.0
//! A run for other programs: `csv.rs` and `parquet.rs` one row an event (`rows.rs`), `folded.rs`
//! idle time as stacks for flame graphs, `gpu_folded.rs` that of GPU operations. The Chrome trace
//! is `chrome.rs`, tables are `tables/`.

mod csv;
mod folded;
mod gpu_folded;
mod parquet;
mod rows;

pub use csv::csv;
pub use folded::folded;
pub use gpu_folded::gpu_folded;
pub use parquet::parquet;
