// SPDX-License-Identifier: Apache-2.0
//! Purpose: a driver whose `cuInit` fails, whatever the reason: the program gets the same answers,
//! output and status as without us, at most one line is said, and no file is left. So too where the
//! driver fails after it has called us.

use gapprobe_scenarios::{cases, Victim, RELEASES};

/// 2 out of memory, 3 not initialized, 100 no device, 101 invalid device, 802 system not ready, 803
/// driver and kernel module do not fit, 804 no forward compatibility, 999 unknown.
const CODES: [&str; 8] = ["2", "3", "100", "101", "802", "803", "804", "999"];

#[test]
fn the_program_is_untouched() {
    for (n, code) in CODES.iter().enumerate() {
        for (m, order) in cases(&["plain", "injected"]).iter().enumerate() {
            let release = RELEASES[(n + m) % RELEASES.len()]; // each of them with some of the codes
            let victim = || {
                let victim = Victim::ours(release, &["no_cuda", order]);
                victim.env("SIM_FAULT", format!("cuinit=error{code}"))
            };
            let (alone, with) = (victim().alone().run(), victim().run());
            let label = format!("{release} cuInit {code} {order}: {}", with.stderr);
            assert_eq!(alone.ending(), 7, "{label}");
            assert!(alone.stdout.starts_with(&format!("cuInit {code} ")), "{label}: {}", alone.stdout);
            assert_eq!((with.ending(), &with.stdout), (7, &alone.stdout), "{label}");
            assert_eq!(with.others(), alone.others(), "{label}");
            assert!(with.lines().len() <= 1, "{label}");
            assert!(with.left_anywhere().is_empty(), "{label}: {:?}", with.left_anywhere());
            assert!(with.recordings().is_empty(), "{label}");
        }
    }
}

#[test]
fn the_same_driver_without_the_fault_is_recorded() {
    // the victim leaves nothing for want of GPU work, not for want of gapprobe: with a driver that
    // works it attaches
    for release in RELEASES {
        let run = Victim::ours(release, &["no_cuda", "plain"]).run();
        assert_eq!((run.ending(), run.stdout.lines().count()), (7, 4), "{release}: {}", run.stderr);
        assert!(
            run.stdout.starts_with("cuInit 0 count 0 malloc 0 synchronize 0\n"),
            "{release}: {}",
            run.stdout
        );
        assert_eq!(run.recordings().len(), 1, "{release}: {}", run.stderr);
    }
}
