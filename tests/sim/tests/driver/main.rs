// SPDX-License-Identifier: Apache-2.0
//! The simulated driver seen from outside: victims run under a minimal CUPTI client (recorder.c),
//! and what it saw is held against the truth the driver wrote.

mod faults;
mod harness;
mod records;
mod releases;
mod work;
