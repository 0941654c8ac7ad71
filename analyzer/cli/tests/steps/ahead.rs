// SPDX-License-Identifier: Apache-2.0
//! A host that is far ahead of the GPU, in a recording that begins in the middle (an nsys export of
//! one second, a capture window): the calls that launched the first half of what the GPU does are
//! not in it.

use trace::build::Builder;
use trace::call::{pack, Class, RUNTIME};
use trace::{Event, Kind};
use verdict::analysis::StepSource;

const STEP: u64 = 10_000_000;
const KERNELS: u64 = 10;

/// `steps` steps of ten kernels of 0.9 ms, launched `ahead` ns before they run; calls before the
/// first kernel's start are missing. Every third step copies on a stream of its own, which runs at
/// its own pace.
fn recording(steps: u64, ahead: u64) -> Vec<u8> {
    let mut b = Builder::new();
    b.device(0, "GPU", 132);
    let kernels: Vec<u32> = (0..KERNELS)
        .map(|k| b.kernel(&format!("layer_{}_kernel", (b'a' + k as u8) as char), 256, 64))
        .collect();
    let begin = 1_000_000_000;
    for n in 0..steps * KERNELS {
        let start = begin + n * STEP / KERNELS;
        let launch = start - ahead;
        let correlation = n as u32 + 1;
        let op = Event::new(Kind::Kernel, start, start + 900_000);
        b.on_stream(0, 1, 7, Event { correlation, a: kernels[(n % KERNELS) as usize], b: 264, ..op });
        if n % (3 * KERNELS) == 0 {
            let copy = Event::new(Kind::Memcpy, start - 400_000, start - 300_000);
            b.on_stream(0, 1, 9, Event { correlation: 1_000_000 + correlation, a: 4096, b: 1 << 16, ..copy });
        }
        if launch >= begin {
            let call = Event::new(Kind::Call, launch, launch + 3_000);
            b.on_thread(100, Event { correlation, a: pack(RUNTIME, 211), x: Class::Launch as u8, ..call });
        }
    }
    b.finish()
}

#[test]
fn steps_lie_in_the_order_of_time_and_do_not_overlap() {
    for ahead in [100_000, 35_000_000, 205_000_000] {
        let run = verdict::load(recording(40, ahead).as_slice()).unwrap();
        let a = verdict::analyze(&run);
        assert_eq!(a.steps.source, StepSource::Period);
        super::about(a.steps.steps.len(), 40);
        for s in &a.steps.steps {
            let ms = s.span.ns() as f64 / 1e6;
            assert!(
                (ms - 10.0).abs() < 1.5, // the first or last may lack a kernel of the ten
                "a step of {ms:.1} ms, in truth 10, {} ms ahead",
                ahead / 1_000_000
            );
        }
        for w in a.steps.steps.windows(2) {
            assert!(w[0].span.end <= w[1].span.start, "steps overlap");
        }
    }
}
