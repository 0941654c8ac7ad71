// SPDX-License-Identifier: Apache-2.0
//! What a process counts without records, as its header has it: steps, launches and waits between
//! windows, and whether it hangs. Known where it records in windows, or with the flight recorder
//! on.

use trace::total::HANGS;
use trace::{call, Header, Total};

use super::RecordingState;

/// See above.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct Counted {
    /// Usual time of the last steps, ns: median, or mean where they are uneven; `None`: no steps
    /// are known.
    pub step_ns: Option<u64>,
    /// Time in synchronizing calls a step, ns, summed over threads: of the last second or so.
    pub sync_ns: u64,
    /// It hangs.
    pub hang: Option<Hang>,
    /// Between windows; `None`: it records all.
    pub between: Option<Between>,
}

/// A program that did nothing for long.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Hang {
    /// For so long, ns.
    pub ns: u64,
    /// The synchronizing call that a thread has been in for most of it; `None`: none was seen.
    pub call: Option<&'static str>,
}

/// Run-wide, between windows.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct Between {
    /// Steps.
    pub steps: u64,
    /// Launches.
    pub launches: u64,
    /// Synchronizing calls.
    pub syncs: u64,
    /// Time in them, ns, summed over threads.
    pub sync_ns: u64,
}

impl Between {
    /// `None`: there were no windows.
    pub fn of(header: &Header) -> Option<Between> {
        let of = |total| header.total(total);
        (of(Total::Windows) > 0).then(|| Between {
            steps: of(Total::StepsBetween),
            launches: of(Total::LaunchesBetween),
            syncs: of(Total::SyncsBetween),
            sync_ns: of(Total::SyncBetweenNs),
        })
    }
}

/// Are all steps counted: by marks, by launches, or since all of the run is recorded? Where they
/// are not, what was counted stands still while the program goes on.
pub fn counts_all_steps(header: &Header, standing: RecordingState) -> bool {
    let of = |total| header.total(total) > 0;
    // recording ends for good where launches are not seen
    let by_launches = of(Total::ClockSteps) && standing != RecordingState::Ended;
    let is_recorded = !of(Total::Windows) && standing != RecordingState::Off;
    of(Total::Steps) || by_launches || is_recorded
}

impl Counted {
    /// How long it has hung, ns, 0 where it does not; `None`: its steps are not known. (How long
    /// they take may be unknown though there are some: [`super::Figures::in_its_units`].)
    pub fn hang_ns(&self, header: &Header) -> Option<u64> {
        (header.total(Total::ClockStepNs) > 0).then(|| self.hang.map_or(0, |hang| hang.ns))
    }

    /// `None`: the process counts nothing. `now`: CLOCK_MONOTONIC, ns.
    pub fn of(header: &Header, now: u64) -> Option<Counted> {
        let of = |total| header.total(total);
        if of(Total::LastActivityAt) == 0 {
            return None;
        }
        let step_ns = Some(of(Total::ClockStepNs)).filter(|ns| *ns > 0);
        let idle = now.saturating_sub(of(Total::LastActivityAt));
        // long beside its steps; without steps nothing tells how long is long
        let hangs = step_ns.is_some_and(|step| idle > HANGS.1.max(step.saturating_mul(HANGS.0)));
        let in_sync = now.saturating_sub(of(Total::InSyncSince));
        let is_in_sync = of(Total::InSyncSince) > 0 && in_sync > idle / 2;
        let name = u32::try_from(of(Total::InSyncCall)).ok().and_then(call::find).map(|c| c.name);
        Some(Counted {
            step_ns,
            sync_ns: of(Total::ClockSyncNs),
            hang: hangs.then_some(Hang { ns: idle, call: name.filter(|_| is_in_sync) }),
            between: Between::of(header),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const S: u64 = 1_000_000_000;

    fn header(step_ns: u64, active_at: u64, in_sync_since: u64) -> Header {
        let mut h = Header::default();
        let values = [
            (Total::ClockStepNs, step_ns),
            (Total::LastActivityAt, active_at),
            (Total::InSyncSince, in_sync_since),
            (Total::InSyncCall, u64::from(call::pack(call::RUNTIME, 131))),
        ];
        values.into_iter().for_each(|(total, value)| h.totals[total as usize] = value);
        h
    }

    #[test]
    fn a_hang_is_told_also_where_parts_of_steps_are_counted() {
        let of = |h: &Header, clock_unit| {
            let figures = crate::live::Figures { clock_unit, ..Default::default() };
            figures.in_its_units(Counted::of(h, 70 * S).expect("it counts")).hang_ns(h)
        };
        let hangs = header(3_000_000, 50 * S, 0);
        assert_eq!((of(&hangs, 1.0), of(&hangs, 0.2)), (Some(20 * S), Some(20 * S)));
        assert_eq!(of(&header(3_000_000, 69 * S, 0), 0.2), Some(0));
        assert_eq!(of(&header(0, 50 * S, 0), 1.0), None, "no steps are known");
    }

    #[test]
    fn steps_that_nobody_counts_are_not_known() {
        use RecordingState::{Ended, Off, On};
        let of = |totals: &[Total], standing| {
            let mut h = Header::default();
            totals.iter().for_each(|total| h.totals[*total as usize] = 7);
            counts_all_steps(&h, standing)
        };
        assert!(of(&[], On), "all are recorded");
        assert!(!of(&[], Off), "the program goes on");
        assert!(!of(&[Total::Windows], On), "some were not recorded");
        assert!(!of(&[Total::Windows], Ended));
        for standing in [On, Off] {
            assert!(of(&[Total::Windows, Total::ClockSteps], standing));
        }
        assert!(!of(&[Total::Windows, Total::ClockSteps], Ended), "launches are not seen");
        assert!(of(&[Total::Windows, Total::Steps], Ended), "marks are counted to the end");
    }

    #[test]
    fn a_program_hangs_that_does_nothing_for_long_beside_its_steps() {
        let of = |h: &Header, now| Counted::of(h, now).expect("it counts").hang;
        assert_eq!(Counted::of(&Header::default(), 100 * S), None);
        let quick = header(3_000_000, 50 * S, 0);
        assert_eq!(of(&quick, 60 * S), None, "ten seconds");
        assert_eq!(of(&quick, 61 * S), Some(Hang { ns: 11 * S, call: None }));
        let in_sync = header(3_000_000, 50 * S, 51 * S);
        assert_eq!(of(&in_sync, 70 * S), Some(Hang { ns: 20 * S, call: Some("cudaStreamSynchronize") }));
        let just_now = header(3_000_000, 50 * S, 69 * S);
        assert_eq!(of(&just_now, 70 * S), Some(Hang { ns: 20 * S, call: None }), "for a second only");
        assert_eq!(of(&header(2 * S, 50 * S, 0), 89 * S), None, "20 steps of two seconds");
        assert_eq!(of(&header(0, 50 * S, 0), 999 * S), None, "no steps are known");
    }
}
