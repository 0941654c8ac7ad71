// SPDX-License-Identifier: Apache-2.0
//! By how much recording slows what is replayed: the model, scaled until a replay without the
//! recorder is as much shorter as the process measured.

use super::prepare::Prepared;
use super::{Fixes, RecorderSlows, Slowed};

/// The model is scaled by so much at most, and this finely, permille.
const MAX_SCALE: u64 = 8000;
const FINE: u64 = 20;

impl RecorderSlows {
    /// The same, so many permille of it.
    pub(crate) fn scaled(self, permille: u64) -> RecorderSlows {
        let (slow, fast) = self.by;
        let (calls, of) = self.most_calls;
        RecorderSlows {
            by: (1000 * fast + slow.saturating_sub(fast) * permille, 1000 * fast),
            most_calls: (calls * permille, of * 1000),
            node_ns: self.node_ns * permille / 1000,
        }
    }
}

impl Prepared {
    /// By how much recording it is taken to slow host and graphs; `None`: another tool recorded it.
    pub(crate) fn recorder_slows(&self) -> Option<RecorderSlows> {
        match self.slowed {
            Slowed::ByRecorder(slows) => Some(slows),
            _ => None,
        }
    }

    /// As the process measured: recorded steps are this share longer than others.
    pub(super) fn calibrate(&mut self, longer: f64) {
        let Some(slows) = self.recorder_slows() else { return };
        let wanted = self.play(Fixes::default()) as f64 / (1.0 + longer);
        // the more the recorder slows, the shorter is what is replayed without it
        let (mut low, mut high) = (0, MAX_SCALE);
        while high - low > FINE {
            let middle = (low + high) / 2;
            match self.play_unrecorded(slows.scaled(middle)) as f64 > wanted {
                true => low = middle,
                false => high = middle,
            }
        }
        self.slowed = Slowed::ByRecorder(slows.scaled(high));
    }
}
