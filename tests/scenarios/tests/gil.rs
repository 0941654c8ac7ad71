// SPDX-License-Identifier: Apache-2.0
//! Purpose: where a launching thread waits for Python's lock, the line of the thread that holds it
//! is sampled, in every CPython there is, though that thread never calls CUDA; and the verdict
//! names that line, not the one that waits.

use std::collections::BTreeSet;

use trace::event::sample;
use trace::Total;

use super::sampled::{fine, marked, pythons, samples, share, victim, with_a_lock, Sampled};

/// In the loop that holds the lock.
fn holds(s: &Sampled) -> bool {
    let lines = marked("HOLD") - 4..=marked("HOLD");
    s.stands_in("hold_the_lock") && lines.contains(&s.frames[0].2) && s.event.x & sample::HOLDS_GIL != 0
}

#[test]
fn the_thread_that_holds_the_lock_is_read_while_another_waits_for_it() {
    for python in with_a_lock() {
        let name = python.display();
        let run = victim(&python, "lock", "1.5").run();
        let recorded = fine(&run, &python);
        let all = samples(&recorded);
        let main = run.truth().pid;
        let (own, others): (Vec<&Sampled>, Vec<&Sampled>) = all.iter().partition(|s| s.tid == main);
        let waits: Vec<_> = own.iter().filter(|s| s.event.x & sample::WAITS_GIL != 0).collect();
        // (it may be looked at as it begins or ends)
        let elsewhere: Vec<_> = others.iter().filter(|s| !holds(s)).map(|s| &s.frames).collect();
        assert!(elsewhere.len() <= 1, "{name}: {elsewhere:?}");
        let told = |w: &Sampled| {
            let at = w.event.end;
            others.iter().any(|o| o.event.start <= at && at <= o.event.end)
        };
        let known = waits.iter().filter(|w| told(w)).count();
        assert!(waits.len() > 5 && known * 10 > waits.len() * 8, "{name}: {known} of {}", waits.len());
        let missed = recorded.total(Total::GilHoldersMissed);
        // (a look that ends behind the last round of the drain thread is counted, and its samples
        // are not written)
        let answered = others.len() as u64 + missed;
        let all_waits = waits.len() as u64..=waits.len() as u64 + 1;
        assert!(all_waits.contains(&answered), "{name}: every wait is answered or counted: {answered}");
        println!("{name}: {known} of {} waits, {missed} missed", waits.len());
    }
}

#[test]
fn nobody_else_is_read_where_nobody_waits() {
    for python in pythons() {
        let run = victim(&python, "sleep_beside", "0.8").run();
        let all = samples(&fine(&run, &python));
        let tids: BTreeSet<u32> = all.iter().map(|s| s.tid).collect();
        assert_eq!(tids, BTreeSet::from([run.truth().pid]), "{}", python.display());
    }
}

/// In so many samples of the launching thread it was given no CPU: a machine too busy to tell a
/// wait for the lock from that.
const MOST_STARVED: f64 = 0.2;

#[test]
fn the_verdict_names_the_line_that_holds_the_lock() {
    let lines = marked("HOLD") - 1..=marked("HOLD");
    for python in with_a_lock() {
        let name = python.display();
        let named = (0..4).any(|_| {
            let run = victim(&python, "lock_steps", "3").run();
            let all = samples(&fine(&run, &python));
            let summary = run.summary().expect("a summary");
            let verdict = &summary["verdict"];
            println!("{name}: {}", run.lines().join(" "));
            if verdict["cause"] != "GIL" {
                let starved = share(&all, |s| s.tid == run.truth().pid && s.queued() >= 500);
                assert!(starved > MOST_STARVED, "{name}: starved in {starved}: {verdict}");
                return false;
            }
            let site = &verdict["site"];
            assert!(site["file"].as_str().is_some_and(|f| f.ends_with("sampled.py")), "{name}: {verdict}");
            assert_eq!(site["function"], "hold_the_lock", "{name}: {verdict}");
            assert!(site["line"].as_u64().is_some_and(|l| lines.contains(&(l as u32))), "{name}: {verdict}");
            let text = verdict["text"].as_str().unwrap_or("");
            assert!(text.contains("; held by hold_the_lock at "), "{name}: {text}");
            true
        });
        if !named {
            println!("SKIPPED: {name} was given no CPU in four runs, its verdict was not judged");
        }
    }
}
