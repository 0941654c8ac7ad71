// SPDX-License-Identifier: Apache-2.0
// COLD
//! Calls of the program's objects that are led to us: through the slots that the loader fills.

pub(crate) mod dlsym;
pub(crate) mod imports;
pub(crate) mod opened;
pub(crate) mod slots;
