// SPDX-License-Identifier: Apache-2.0
// COLD (`Lead::real` is HOT)
//! Slots of the program's objects that are led to us (`runtime`, `driver`, `waits`): those that
//! lead to one certain function of CUDA's.

use std::ffi::CStr;
use std::ops::Range;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::hooks::imports;
use crate::platform::loader::{self, Library};

/// A function of CUDA's, and ours that stands before it.
pub(crate) struct Lead {
    name: &'static CStr,
    /// Domain and id of the call, as recordings number it (`trace::call`).
    pub(crate) call: u32,
    ours: fn() -> usize,
    /// The function itself, once it is known; a slot leads to ours only from then on.
    real: AtomicUsize,
}

impl Lead {
    pub(crate) const fn new(name: &'static CStr, call: u32, ours: fn() -> usize) -> Lead {
        Lead { name, call, ours, real: AtomicUsize::new(0) }
    }

    pub(crate) fn name(&self) -> &'static CStr {
        self.name
    }

    /// The address of our function.
    pub(crate) fn ours(&self) -> usize {
        (self.ours)()
    }

    /// 0: not known.
    #[inline]
    pub(crate) fn real(&self) -> usize {
        self.real.load(Ordering::Relaxed)
    }

    /// The function in this library, if it is the one of all calls before (ours can hand on to one
    /// only).
    pub(crate) fn find(&self, library: &Library) -> Option<Target> {
        Target::find(library, self.name).filter(|found| self.takes(found.address))
    }

    /// Does ours hand on to this function: the first one that it is given?
    pub(crate) fn takes(&self, address: usize) -> bool {
        let _ = self.real.compare_exchange(0, address, Ordering::AcqRel, Ordering::Acquire);
        self.real.load(Ordering::Acquire) == address
    }
}

/// A table of functions, and where they are now.
pub(crate) struct Leads<const N: usize> {
    table: &'static [Lead; N],
    targets: [Option<Target>; N],
    left: bool,
}

impl<const N: usize> Leads<N> {
    /// As far as `library` of a call has them.
    pub(crate) fn find<'a>(
        table: &'static [Lead; N],
        library: impl Fn(&Lead) -> Option<&'a Library>,
    ) -> Leads<N> {
        let targets = table.each_ref().map(|lead| lead.find(library(lead)?));
        Leads { table, targets, left: false }
    }

    /// All of them or none.
    pub(crate) fn whole(self) -> Option<Leads<N>> {
        self.targets.iter().all(Option::is_some).then_some(self)
    }

    /// None of them.
    pub(crate) fn none(table: &'static [Lead; N]) -> Leads<N> {
        Leads { table, targets: [None; N], left: false }
    }

    /// Were slots left alone for now: those that are not bound yet, where it cannot be told what
    /// to?
    pub(crate) fn has_left(&self) -> bool {
        self.left
    }
}

impl<const N: usize> imports::Rewrite for Leads<N> {
    fn wants(&mut self, object: &[u8]) -> bool {
        let name = loader::file_name(object);
        let not: [&[u8]; 6] =
            [b"libcudart", b"libcuda.so", b"libcupti", b"libnvidia-", b"libgapprobe", b"linux-vdso"];
        !not.iter().any(|library| name.starts_with(library))
    }

    fn replacement(&mut self, name: &[u8], now: usize, own: &Range<u64>) -> Option<usize> {
        if !name.starts_with(b"cu") && !name.starts_with(b"__cuda") {
            return None;
        }
        let (lead, target) = self.table.iter().zip(&self.targets).find(|(l, _)| l.name.to_bytes() == name)?;
        let is_it = (*target)?.is_in(now, own);
        self.left |= is_it.is_none();
        (is_it == Some(true)).then(|| lead.ours())
    }
}

/// A function that slots may lead to.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Target {
    /// 0: there is none.
    pub(crate) address: usize,
    /// It is in the global scope, which is searched first: a slot that is not bound yet will be
    /// bound to it. Else an object's own scope may hold another one of its name.
    pub(crate) is_global: bool,
}

impl Target {
    /// The library's function of this name; `None` where something else in the global scope has it.
    pub(crate) fn find(library: &Library, name: &CStr) -> Option<Target> {
        // SAFETY: an open handle and a C string.
        let address = unsafe { libc::dlsym(library.handle.as_ptr(), name.as_ptr()) } as usize;
        // SAFETY: a C string; the global scope is looked through.
        let first = unsafe { libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr()) } as usize;
        (first == 0 || first == address).then_some(Target { address, is_global: first != 0 })
    }

    /// Does a slot that holds `now`, of an object that lies in `own`, lead to it? `None`: it is not
    /// bound yet, and it cannot be told.
    pub(crate) fn is_in(self, now: usize, own: &Range<u64>) -> Option<bool> {
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
