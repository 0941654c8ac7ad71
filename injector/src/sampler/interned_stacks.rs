// SPDX-License-Identifier: Apache-2.0
// WARM
//! The stacks that were handed over, each once: by code object and line.

use std::collections::HashMap;

use trace::Loss;

use super::code::Codes;
use super::handover::{put, Frame, Item};
use super::stack::Frames;
use crate::platform::losses;

/// Distinct stacks told at most.
const MOST_STACKS: usize = 8192;

/// See the module's head.
#[derive(Default)]
pub(super) struct InternedStacks {
    stacks: HashMap<Vec<(u32, u32)>, u32>,
}

impl InternedStacks {
    /// The number of a stack, told with its first use; 0 where there is no room; `None`: a frame
    /// stands outside of its code.
    pub(super) fn number(&mut self, stack: &Frames, codes: &mut Codes) -> Option<u32> {
        let lines = stack.iter().map(|(id, frame)| codes.line(*id, frame).map(|line| (*id, line)));
        let key: Vec<(u32, u32)> = lines.collect::<Option<_>>()?;
        if let Some(number) = self.stacks.get(&key) {
            return Some(*number);
        }
        let frame = |&(id, line): &(u32, u32)| {
            let (function, file) = codes.names(id)?;
            Some((function, file, line))
        };
        let frames: Vec<Frame> = key.iter().map(frame).collect::<Option<_>>()?;
        if self.stacks.len() >= MOST_STACKS {
            losses::add(Loss::SiteDropped, 1);
            return Some(0);
        }
        if !put(Item::Stack(frames)) {
            return Some(0);
        }
        let number = self.stacks.len() as u32 + 1;
        self.stacks.insert(key, number);
        Some(number)
    }
}
