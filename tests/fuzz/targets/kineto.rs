// SPDX-License-Identifier: Apache-2.0
//! Chrome JSON, on any bytes: no panic, the same whatever the blocks it is read in, busy and idle
//! that sum to the span.
#![no_main]

use formats::kineto::read_in_blocks;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &[u8]| {
    let read = |size| read_in_blocks(input, size, &Default::default());
    let (whole, blocks) = (read(usize::MAX), read(64));
    let (Ok(whole), Ok(blocks)) = (&whole, &blocks) else {
        assert_eq!(whole.is_ok(), blocks.is_ok());
        return;
    };
    assert_eq!((whole.events, whole.refused), (blocks.events, blocks.refused));
    let run = &whole.run;
    assert_eq!(run.events, blocks.run.events);
    let analysis = verdict::analyze(run);
    for (d, device) in analysis.devices.iter().zip(&run.devices) {
        assert_eq!(d.busy_ns + d.idle_ns, d.span.ns());
        assert_eq!(d.buckets.total(), d.wall_ns, "device {}", device.ordinal);
    }
    let line = verdict::output::sentence::line(run, &analysis, None);
    assert!(!line.trim().is_empty() && line.chars().all(|c| !c.is_control()), "{line:?}");
    if whole.refused.cut {
        assert!(line.contains("[GP199]"), "{line}");
    }
});
