// SPDX-License-Identifier: Apache-2.0
// COLD
//! Where CPython keeps an object's attributes and a dictionary's entries: read in the headers
//! (`object.h`, `internal/pycore_object.h`, `internal/pycore_dict.h`) of 3.8 to 3.15, default
//! builds; a dictionary's keys and values lie at 32 and 40 in all of them.

/// How a table of keys says how large it is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Keys {
    /// By its number of slots, and entries of hash, key, value (up to 3.10).
    Sized,
    /// By logarithms; tables of texts alone have entries of key and value (from 3.11 on).
    Logarithmic,
}

/// Of a version.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Dictionaries {
    /// An object's dictionary lies so far before it (from 3.11 on); `None`: where its type says.
    pub(crate) before_object: Option<u64>,
    pub(crate) keys: Keys,
    /// From an object's own array of values, where it shares its keys with others, to the first.
    pub(crate) to_values: u64,
}

impl Dictionaries {
    /// Of 3.8 and newer.
    pub(super) const fn of(minor: u32) -> Dictionaries {
        Dictionaries {
            before_object: if minor >= 11 { Some(24) } else { None },
            keys: if minor >= 11 { Keys::Logarithmic } else { Keys::Sized },
            to_values: if minor >= 13 { 8 } else { 0 },
        }
    }
}
