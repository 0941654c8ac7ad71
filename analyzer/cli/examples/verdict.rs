// SPDX-License-Identifier: Apache-2.0
//! Prints the line, the buckets and the time taken for recordings and traces of any format.
//!
//! `cargo run --release -p gapprobe-cli --example verdict -- FILE...`

use std::time::Instant;

use verdict::analysis::Bucket;

fn main() {
    for path in std::env::args().skip(1) {
        let begin = Instant::now();
        let input = match formats::read(path.as_ref(), &Default::default()) {
            Ok(input) => input,
            Err(error) => {
                eprintln!("{error}\nhint: {}", error.hint);
                continue;
            }
        };
        let run = input.run;
        let loaded = begin.elapsed();
        let a = verdict::analyze(&run);
        println!("{}", verdict::output::sentence::line(&run, &a, Some(&path)));
        println!(
            "  {} events, load {:.1?}, analyze {:.1?}; steps {:?} {} (warm-up {}, micro {}), model {:+.1} % of {:.2} ms",
            run.events,
            loaded,
            begin.elapsed() - loaded,
            a.steps.source,
            a.steps.steps.len(),
            a.steps.warm_up,
            a.steps.micro,
            (a.model.replayed_ns / a.model.measured_ns - 1.0) * 100.0,
            a.model.measured_ns / 1e6
        );
        for d in &a.devices {
            println!("  whole file: idle {} of {} ns", d.idle_ns, d.span.ns());
            for b in Bucket::ALL.iter().filter(|&&b| d.buckets.get(b) > 0) {
                println!("  {:16} {:6.2} %", b.key(), d.buckets.share(*b) * 100.0);
            }
        }
        for f in &a.findings {
            println!(
                "  {} {:14} share {:5.1} % win {:5.1} % {}",
                f.code,
                f.cause,
                f.share * 100.0,
                f.win.share() * 100.0,
                f.text()
            );
        }
    }
}
