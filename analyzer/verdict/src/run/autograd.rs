// SPDX-License-Identifier: Apache-2.0
//! PyTorch's backward pass and the forward pass that it belongs to: which line of the program a
//! call's work is of (`load/autograd.rs` finds it).

use super::{Call, Op, Run};

/// What a call's work is of.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Hash)]
pub struct Work {
    /// Stack of the program's line; 0: not known.
    pub stack: u32,
    /// The type of the node that was evaluated, a string id; `None`: none was.
    pub node: Option<u32>,
}

/// A call made while a node was evaluated.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct InBackward {
    /// Begin of the call, ns.
    pub start: u64,
    /// Stack of the line that its work is of; 0: not known.
    pub stack: u32,
    /// Type of the node, a string id.
    pub node: u32,
}

/// A launch that was captured as a kernel of a CUDA graph.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Captured {
    /// What its work is of.
    pub work: Work,
    /// Its own stack; 0: not known.
    pub site: u32,
}

/// What an operation goes back to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Origin {
    /// What its work is of.
    pub work: Work,
    /// The stack that its launch was made from, of a kernel of a CUDA graph that of the launch that
    /// was captured; 0: not known.
    pub site: u32,
    /// Index of the thread that launched it (or the graph) and when, ns; `None`: not known.
    pub launched: Option<(usize, u64)>,
}

impl Run {
    /// What `op` goes back to; `None`: nothing is known of it.
    pub fn origin(&self, op: &Op) -> Option<Origin> {
        let by = self.call(op.call);
        let launched = by.map(|(thread, call)| (thread, call.start));
        if let Some(&Captured { work, site }) = self.captured.get(&op.captured) {
            return Some(Origin { work, site, launched });
        }
        by.map(|(thread, call)| Origin { work: self.work(thread, call), site: call.site, launched })
    }

    /// What the work is of that `call` of this thread (its index) put on the GPU.
    pub fn work(&self, thread: usize, call: &Call) -> Work {
        let calls = self.threads.get(thread).map_or(&[][..], |t| &t.backward);
        let found = calls.binary_search_by_key(&call.start, |c| c.start).ok().and_then(|n| calls.get(n));
        match found {
            Some(c) => Work { stack: c.stack, node: Some(c.node) },
            None => Work { stack: call.site, node: None },
        }
    }
}

/// The last part of a type's mangled name (Itanium C++ ABI): `AddmmBackward0` of
/// `N5torch8autograd9generated14AddmmBackward0E`; a name of another form as it is.
pub fn type_name(mangled: &str) -> &str {
    let (mut rest, mut found) = (mangled.strip_prefix('N').unwrap_or(mangled), mangled);
    loop {
        let digits = rest.bytes().take_while(u8::is_ascii_digit).count();
        let part = rest.split_at_checked(digits).and_then(|(length, rest)| {
            let length = length.parse().ok()?;
            rest.split_at_checked(length)
        });
        let Some((name, behind)) = part else { return found };
        (found, rest) = (name, behind);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_part_of_a_types_name() {
        assert_eq!(type_name("N5torch8autograd9generated14AddmmBackward0E"), "AddmmBackward0");
        assert_eq!(type_name("14AddmmBackward0"), "AddmmBackward0");
        for other in ["", "N", "E", "99x", "N5torch", "N4294967296x", "N3\u{e4}"] {
            let _ = type_name(other);
        }
        assert_eq!(type_name("Sx"), "Sx");
    }
}
