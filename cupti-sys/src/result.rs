// SPDX-License-Identifier: Apache-2.0
//! CUPTI's result code as a type. No call into CUPTI: `cuptiGetResultString` crashes in one release
//! without a driver.

use crate::bindings::result;
use core::fmt;

/// What every CUPTI function returns. Any number is valid: a newer library may return codes we have
/// no name for.
#[repr(transparent)]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[must_use = "CUPTI tells failures only by this code"]
pub struct CuptiResult(pub u32);

impl CuptiResult {
    /// The call did what it was asked for.
    pub const SUCCESS: Self = Self(result::SUCCESS);
    /// A parameter is invalid; also an unknown callback id, or a library too old for the one given.
    pub const INVALID_PARAMETER: Self = Self(result::ERROR_INVALID_PARAMETER);
    /// The subscription is taken (releases before 39 existed).
    pub const MAX_LIMIT_REACHED: Self = Self(result::ERROR_MAX_LIMIT_REACHED);
    /// CUPTI refuses: its V1 and V2 interfaces were mixed, or a kind cannot be had here.
    pub const NOT_COMPATIBLE: Self = Self(result::ERROR_NOT_COMPATIBLE);
    /// No driver, a driver too old, or CUPTI could not start: also what our exported wrappers say
    /// without a CUPTI.
    pub const NOT_INITIALIZED: Self = Self(result::ERROR_NOT_INITIALIZED);
    /// The kind is unknown to this release; from `GetNextRecord`, bytes that are no record (11.8
    /// says [`Self::UNKNOWN`]).
    pub const INVALID_KIND: Self = Self(result::ERROR_INVALID_KIND);
    /// The library has no such function or attribute value.
    pub const NOT_SUPPORTED: Self = Self(result::ERROR_NOT_SUPPORTED);
    /// Another client holds the one subscription of the process (also under nsys, ncu, cuda-gdb).
    pub const MULTIPLE_SUBSCRIBERS: Self = Self(result::ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED);
    /// Counters need privileges; tracing does not.
    pub const INSUFFICIENT_PRIVILEGES: Self = Self(result::ERROR_INSUFFICIENT_PRIVILEGES);
    /// Where `cuptiActivityGetNextRecord` stands when a buffer holds no further record.
    pub const NO_MORE_RECORDS: Self = Self::MAX_LIMIT_REACHED;
    /// An internal error; what 13.x says to everything without a driver.
    pub const UNKNOWN: Self = Self(result::ERROR_UNKNOWN);

    /// True for [`Self::SUCCESS`] alone.
    #[must_use]
    pub const fn is_success(self) -> bool {
        self.0 == result::SUCCESS
    }

    /// `Ok` on success, else the code as the error.
    pub const fn ok(self) -> Result<(), Self> {
        if self.is_success() {
            Ok(())
        } else {
            Err(self)
        }
    }

    /// NVIDIA's name without the prefix `CUPTI_`, as `ERROR_NOT_INITIALIZED`; `None` for a code
    /// newer than we are.
    #[must_use]
    pub fn name(self) -> Option<&'static str> {
        result::NAMES.iter().find(|(code, _)| *code == self.0).map(|(_, name)| *name)
    }
}

impl fmt::Display for CuptiResult {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.name() {
            Some(name) => write!(formatter, "CUPTI_{name} ({})", self.0),
            None => write!(formatter, "CUPTI result {}", self.0),
        }
    }
}

impl std::error::Error for CuptiResult {}

#[cfg(test)]
mod tests {
    use super::CuptiResult;

    #[test]
    fn names_are_those_of_the_header_and_unknown_codes_keep_their_number() {
        assert_eq!(CuptiResult(39).to_string(), "CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED (39)");
        assert_eq!(CuptiResult(0).to_string(), "CUPTI_SUCCESS (0)");
        assert_eq!(CuptiResult(4711).to_string(), "CUPTI result 4711");
    }

    #[test]
    fn only_zero_is_success() {
        assert_eq!(CuptiResult(0).ok(), Ok(()));
        for code in [1, 12, 15, 39, 999, u32::MAX] {
            assert_eq!(CuptiResult(code).ok(), Err(CuptiResult(code)));
        }
    }
}
