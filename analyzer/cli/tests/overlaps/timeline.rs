// SPDX-License-Identifier: Apache-2.0
//! The truth, without intervals: a row of cells a device, two for each nanosecond, the instant at
//! its begin and the time from there to the next. Work marks cells; what is between the first and
//! the last marked one and is not marked is idle.

use super::Work;

/// What is known of a device. ns.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Figures {
    pub(crate) device: u32,
    pub(crate) busy: u64,
    pub(crate) idle: u64,
    pub(crate) gaps: u64,
    pub(crate) max_gap: u64,
}

/// Of each device that did anything, by number.
pub(crate) fn truth(work: &[Work]) -> Vec<Figures> {
    let mut devices: Vec<u32> = work.iter().map(|w| w.device).collect();
    devices.sort_unstable();
    devices.dedup();
    devices.into_iter().map(|device| figures(device, work)).collect()
}

fn figures(device: u32, work: &[Work]) -> Figures {
    let own = || work.iter().filter(|w| w.device == device);
    let cells = 2 * own().map(|w| w.end).max().unwrap_or(0) as usize + 1;
    let mut marked = vec![false; cells];
    for w in own() {
        // the instants of begin and end too: an operation of no length parts a gap in two
        marked[2 * w.start as usize..=2 * w.end as usize].fill(true);
    }
    let (mut f, mut run) = (Figures { device, busy: 0, idle: 0, gaps: 0, max_gap: 0 }, 0);
    let first = marked.iter().position(|&m| m).unwrap_or(0);
    for (n, &is_marked) in marked.iter().enumerate().skip(first) {
        let is_time = u64::from(n % 2 == 1);
        if is_marked {
            f.busy += is_time;
            f.gaps += u64::from(run > 0);
            run = 0;
        } else {
            f.idle += is_time;
            run += is_time;
            f.max_gap = f.max_gap.max(run);
        }
    }
    f
}

#[test]
fn the_timeline_of_a_known_program() {
    let op = |start, end| Work { device: 2, stream: 1, what: trace::Kind::Kernel, start, end };
    // 10 to 16 and 20 to 30, a moment at 25 inside, one at 40, 50 to 51: gaps of 4, 10 and 10
    let work = [op(10, 14), op(20, 30), op(12, 16), op(25, 25), op(40, 40), op(50, 51)];
    assert_eq!(truth(&work), [Figures { device: 2, busy: 17, idle: 24, gaps: 3, max_gap: 10 }]);
}
