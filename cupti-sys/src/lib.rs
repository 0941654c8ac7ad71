// SPDX-License-Identifier: Apache-2.0
//! CUPTI as gapprobe sees it: raw bindings, a table of record offsets, and a loader that finds it
//! at run time.
//!
//! What lives here: names, numbers and signatures ([`bindings`] and [`cbid`], made by
//! `scripts/dev/bindings`), where the fields of an activity record lie in every release from 11.7
//! to 13.5 ([`record`]), and the resolving of a `libcupti` that is already open into function
//! pointers ([`Cupti`]). What must not: policy (which library, which kinds, when), state, threads,
//! and linking to CUPTI, which may be absent. Any thread may use it; reading a record neither
//! allocates nor locks nor calls.

/// `NAME = number` pairs of one C enum: a constant each, and all of them in `NAMES`.
macro_rules! numbers {
    ($($name:ident = $value:literal,)*) => {
        $(pub const $name: u32 = $value;)*
        /// Every constant of this module with its name.
        pub const NAMES: &[(u32, &str)] = &[$(($value, stringify!($name))),*];
    };
}

/// Callback ids in groups: a constant each, a list per group, and all lists in `GROUPS`.
macro_rules! calls {
    ($($group:ident { $($name:ident = $value:literal, $call:literal;)* })*) => {
        $($(pub const $name: u32 = $value;)*)*
        $(pub const $group: &[$crate::Call] =
            &[$($crate::Call { cbid: $value, call: $call, variant: stringify!($name) }),*];)*
        /// Every group of this module with its name.
        pub const GROUPS: &[(&str, &[$crate::Call])] = &[$((stringify!($group), $group)),*];
    };
}

mod call;
mod loader;
mod release;
mod result;

pub mod bindings;
pub mod cbid;
pub mod record;

pub use bindings::{attribute, domain, kind};
pub use call::Call;
pub use loader::{open_handle, Cupti, MissingSymbol, SubscribeV2};
pub use release::{release_from, Release};
pub use result::CuptiResult;
