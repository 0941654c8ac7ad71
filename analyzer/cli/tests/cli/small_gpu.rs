// SPDX-License-Identifier: Apache-2.0
//! A second GPU with under a tenth of the work is in nobody's figures; that it is there, and idle,
//! is said wherever the other one is judged.

use crate::place::{out, Place};
use crate::training::{steps_of, work, write, Work};

#[test]
fn a_gpu_that_is_not_counted_is_named() {
    let place = Place::new("small-gpu");
    let many = work("gemm", 1000, 40_000, 200);
    let on = |gpu, times| Work { gpu, times, name: "gather", ..many };
    write(&place, "small", &steps_of(0, true, &[many, on(1, 12)]));
    write(&place, "even", &steps_of(0, true, &[many, on(1, 100)]));
    write(&place, "three", &steps_of(0, true, &[many, on(1, 3), on(2, 12)]));
    write(&place, "counted", &steps_of(0, true, &[many, on(1, 100), on(2, 12)]));
    for (file, worst, rest) in [
        ("small", "", "GPU 1, busy 6% with under a tenth of the work, not counted"),
        ("three", "", "2 GPUs with under a tenth of the work not counted"),
        ("counted", "worst of 2", "GPU 2, busy 6% with under a tenth of the work, not counted"),
        ("even", "worst of 2", ""),
    ] {
        let screen = out(&place.run(&["analyze", file]));
        assert_eq!(screen.contains("worst of"), !worst.is_empty(), "{file}: {screen}");
        assert_eq!(screen.contains("not counted"), !rest.is_empty(), "{file}: {screen}");
        assert!(screen.contains(worst) && screen.contains(rest), "{file}: {screen}");
        let line = out(&place.run(&["analyze", "--line", file]));
        let names_one = line.contains("GPU 0 ") || line.contains("GPU 1 ");
        assert_eq!(names_one, !worst.is_empty(), "{file}: {line}");
        // never the idle time of one that is not counted, and whose it is where there are two that
        // are
        let idle = screen.split("Longest idle\n").nth(1).unwrap().split("\n\n").next().unwrap();
        assert_eq!(idle.lines().count(), 3, "{screen}");
        let whose = |l: &str| l.contains("GPU 0, ") || l.contains("GPU 1, ");
        assert!(idle.lines().all(|l| whose(l) != worst.is_empty()), "{screen}");
        assert!(!worst.is_empty() || !idle.contains("gather"), "{screen}");
    }
}
