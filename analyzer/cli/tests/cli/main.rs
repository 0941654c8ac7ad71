// SPDX-License-Identifier: Apache-2.0
//! The command as a user meets it: help, errors with their hints, exit codes, `recover` and `run`
//! end to end. One scenario a file. Texts that are part of the interface lie beside them in *.txt;
//! `GAPPROBE_BLESS=1 cargo test` writes them anew.

mod analyze;
mod beating;
mod check;
mod check_formats;
mod claims;
mod damaged;
mod dash;
mod diff;
mod doctor;
mod documents;
mod everywhere;
mod examples;
mod export;
mod faults;
mod help;
mod hostile_names;
mod hour;
mod html_flame;
mod html_page;
mod html_rare;
mod html_report;
mod leftovers;
mod living;
mod lossy;
mod metrics;
mod misuse;
mod nvml;
mod odd_files;
mod open;
mod outputs;
mod parquet;
mod phases;
mod place;
mod private_folder;
#[path = "../program/mod.rs"]
mod program;
mod progress;
mod prometheus;
mod recover;
mod rfc4180;
mod run;
mod run_refuses;
mod same_work;
mod simulated;
mod small_gpu;
mod special_files;
mod stats;
mod summary;
mod terminal;
mod top_screen;
mod training;
mod unwritable;
mod version;
mod watched;
