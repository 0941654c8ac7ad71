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
        ("small", "", "GPU 1, busy 6 % with under a tenth of the work, not counted"),
        ("three", "", "2 GPUs with under a tenth of the work not counted"),
        ("counted", "worst of 2", "GPU 2, busy 6 % with under a tenth of the work, not counted"),
        ("even", "worst of 2", ""),
    ] {
        let (screen, told) =
            (out(&place.run(&["analyze", file])), out(&place.run(&["analyze", "--line", file])));
        for text in [&screen, &told] {
            assert_eq!(text.contains("worst of"), !worst.is_empty(), "{file}: {text}");
            assert_eq!(text.contains("not counted"), !rest.is_empty(), "{file}: {text}");
            assert!(text.contains(worst) && text.contains(rest), "{file}: {text}");
        }
        // never the idle time of one that is not counted, and whose it is where there are two that
        // are
        let idle = screen.split("Longest idle\n").nth(1).unwrap().split("\n\n").next().unwrap();
        assert_eq!(idle.lines().count(), 3, "{screen}");
        let whose = |l: &str| l.contains("GPU 0, ") || l.contains("GPU 1, ");
        assert!(idle.lines().all(|l| whose(l) != worst.is_empty()), "{screen}");
        assert!(!worst.is_empty() || !idle.contains("gather"), "{screen}");
    }
}
