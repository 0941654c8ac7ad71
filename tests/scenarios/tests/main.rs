// SPDX-License-Identifier: Apache-2.0
//! What must be seen without a GPU, one scenario a file, its purpose on top of it. Real programs, the real library, the
//! simulated driver; one process each, since a preloaded library cannot be taken out again.

mod adversity;
mod after_run;
mod callers;
mod clients;
mod crashes;
mod dataloader;
mod dependencies;
mod entries;
mod exactness;
mod exits;
mod faults;
mod flight;
mod forks;
mod from_outside;
mod gil;
mod growth;
mod guests;
mod hot_path;
mod injections;
mod killed;
mod lapped;
mod marks;
mod memory;
mod no_cuda;
mod nvtx;
mod odd_ends;
mod panics;
mod places;
mod preloads;
mod refused;
mod replay;
mod retention;
mod sampled;
mod sampler;
mod security;
mod settings;
mod sites;
mod stacks;
mod stopped;
mod strangers;
mod untouched;
mod waits;
mod windows;
mod wraps;
