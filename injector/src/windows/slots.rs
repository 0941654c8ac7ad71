// SPDX-License-Identifier: Apache-2.0
// COLD
//! Which slots of the program's objects may be led to us (`runtime`, `waits`): those that lead to one certain function of CUDA's.

use std::ffi::CStr;
use std::ops::Range;

use crate::cupti::choose::Library;

/// A function that slots may lead to.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct Target {
    /// 0: there is none.
    pub(super) address: usize,
    /// It is in the global scope, which is searched first: a slot that is not bound yet will be bound to it. Else an object's own scope
    /// may hold another one of its name.
    pub(super) is_global: bool,
}

impl Target {
    /// The library's function of this name; `None` where something else in the global scope has it.
    pub(super) fn find(library: &Library, name: &CStr) -> Option<Target> {
        // SAFETY: an open handle and a C string.
        let address = unsafe { libc::dlsym(library.handle.as_ptr(), name.as_ptr()) } as usize;
        // SAFETY: a C string; the global scope is looked through.
        let first = unsafe { libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr()) } as usize;
        (first == 0 || first == address).then_some(Target { address, is_global: first != 0 })
    }

    /// Does a slot that holds `now`, of an object that lies in `own`, lead to it? `None`: it is not bound yet, and it cannot be told.
    pub(super) fn is_in(self, now: usize, own: &Range<u64>) -> Option<bool> {
        // not bound yet: it leads to a stub of the object itself
        let is_unbound = own.contains(&(now as u64));
        match self.address {
            0 => Some(false),
            address if now == address => Some(true),
            _ if is_unbound && self.is_global => Some(true),
            _ if is_unbound => None,
            _ => Some(false),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slot_is_led_to_us_where_it_is_certain() {
        let own = 0x1000..0x2000;
        let target = |is_global| Target { address: 0x5000, is_global };
        for is_global in [false, true] {
            assert_eq!(target(is_global).is_in(0x5000, &own), Some(true));
            assert_eq!(target(is_global).is_in(0x6000, &own), Some(false), "another function");
        }
        assert_eq!(target(true).is_in(0x1800, &own), Some(true), "will be bound to it");
        assert_eq!(target(false).is_in(0x1800, &own), None, "may be bound to anything");
        assert_eq!(Target::default().is_in(0x1800, &own), Some(false));
    }
}
