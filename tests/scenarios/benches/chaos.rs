// SPDX-License-Identifier: Apache-2.0
//! Random programs under random faults, as long as one likes: `cargo bench -p gapprobe-scenarios
//! --bench chaos -- SECONDS [SEED]` runs seeds from SEED on (from the clock), two at a time; 0
//! seconds: this one seed. `short`: the fixed seeds of `scripts/test chaos`, where one that fails
//! runs again alone, and what passes then is named as UNSTEADY. Each is a program of random
//! launches, threads, forks, execs, signals, stops and clock steps with a random way out, under
//! random faults of the simulated driver and the disk, once without gapprobe and once with it. What
//! must hold is in `src/chaos/judge.rs`. Exit code 1 where anything failed, with the command that
//! runs it again.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::Mutex;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use gapprobe_scenarios::chaos::{one, Plan, Tally};

/// First and last seed of the short run: every way out, fault and place is among them.
const SHORT: (u64, u64) = (19_859, 19_953);

fn main() {
    let words: Vec<String> = std::env::args().skip(1).filter(|w| !w.starts_with('-')).collect();
    let short = words.first().is_some_and(|w| w == "short");
    let number = |at: usize| words.get(at).and_then(|w| w.parse::<u64>().ok());
    let seconds = if short { u64::from(u32::MAX) } else { number(0).unwrap_or(60) };
    let clock = || SystemTime::now().duration_since(UNIX_EPOCH).map_or(1, |d| d.as_secs());
    let (first, last) = if short { SHORT } else { (number(1).unwrap_or_else(clock), u64::MAX) };
    let (from, next) = (Instant::now(), AtomicU64::new(first));
    let tally = Mutex::new(Tally::default());
    if seconds == 0 {
        println!("{:#?}", Plan::of(first));
    }
    std::thread::scope(|s| {
        for _ in 0..if seconds == 0 { 1 } else { 2 } {
            s.spawn(|| loop {
                let seed = next.fetch_add(1, Ordering::Relaxed);
                if seed > last {
                    return;
                }
                let (plan, found) = one(seed);
                for failure in &found.failures {
                    println!("seed {seed}: {failure}\n");
                }
                tally.lock().expect("a tally").add(&plan, found);
                if from.elapsed() >= Duration::from_secs(seconds) {
                    return;
                }
            });
        }
    });
    let mut tally = tally.into_inner().expect("a tally");
    println!("seeds from {first} on, {} s\n{tally}", from.elapsed().as_secs());
    if short {
        // against the clock, beside another one: alone it must hold
        tally.failed.retain(|(seed, failures)| {
            let again = one(*seed).1.failures;
            if again.is_empty() {
                println!("UNSTEADY: chaos seed {seed}: {}", failures.join("; "));
            }
            !again.is_empty()
        });
    }
    for (seed, failures) in &tally.failed {
        println!("FAILED: {}", failures.join("; "));
        println!("  again: cargo bench -p gapprobe-scenarios --bench chaos -- 0 {seed}");
    }
    if !tally.failed.is_empty() {
        std::process::exit(1);
    }
}
