// SPDX-License-Identifier: Apache-2.0
//! GP191 MIXED: no single cause is worth 10 %.
//!
//! # What it means
//! The GPU is idle for several reasons, each of which wins less than 10 % of the step time when fixed alone.
//!
//! # How it is recognised
//! Less than 85 % computing, no cause whose fix wins 10 % in the replay of steps that nobody records (docs/run-cost.md). Pairs and triples of fixes are replayed
//! together; the smallest set that wins 10 % is named, else the three largest shares. A wait that costs nothing is tried
//! beside a cause, too: it may stand behind another one, and wait in its place as soon as that is gone.
//!
//! # How sure
//! As sure as the causes it names; see their pages.
//!
//! # What to change
//! The named causes together, cheapest first.

/// Stable code.
pub const CODE: &str = "GP191";
/// Name in the line.
pub const NAME: &str = "MIXED";
