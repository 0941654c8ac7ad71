// SPDX-License-Identifier: Apache-2.0
//! A run for other programs: `csv.rs` one row an event, `folded.rs` idle time as stacks for flame graphs. The Chrome trace
//! is `chrome.rs`, tables are `tables/`.

mod csv;
mod folded;
mod rows;

pub use csv::csv;
pub use folded::folded;
