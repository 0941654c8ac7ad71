// SPDX-License-Identifier: Apache-2.0
// HOT (costs nothing where nothing panics)
//! The boundary: every `extern "C"` body runs inside [`guard`]. A panic is caught, counted and
//! switches gapprobe off; the program sees the neutral value.

use std::panic::{catch_unwind, AssertUnwindSafe};

use crate::platform::{lifecycle, losses};
use trace::Loss;

#[cfg(feature = "forced-panics")]
mod forced;

/// Runs `body`; after a panic gapprobe is off for good and `neutral` is returned.
#[inline]
#[cfg_attr(feature = "forced-panics", track_caller)]
pub(crate) fn guard<R>(neutral: R, body: impl FnOnce() -> R) -> R {
    #[cfg(feature = "forced-panics")]
    let body = forced::before(std::panic::Location::caller(), body);
    match catch_unwind(AssertUnwindSafe(body)) {
        Ok(value) => value,
        Err(payload) => {
            losses::add(Loss::CaughtPanic, 1);
            lifecycle::set(lifecycle::State::Inert);
            // Dropping a foreign payload could panic again: leak it, it happens once.
            std::mem::forget(payload);
            neutral
        }
    }
}

/// Our copy of std prints panics to stderr by default: a guest does not. COLD, in the constructor.
pub(crate) fn silence_panics() {
    std::panic::set_hook(Box::new(|_| {}));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_becomes_the_neutral_value_and_is_counted() {
        silence_panics();
        let before = losses::get(Loss::CaughtPanic);
        assert_eq!(guard(7, || std::hint::black_box(None::<u32>).unwrap()), 7);
        assert_eq!(losses::get(Loss::CaughtPanic), before + 1);
        assert_eq!(lifecycle::get(), lifecycle::State::Inert);
        lifecycle::reset_for_tests();
        let _ = std::panic::take_hook();
    }
}
