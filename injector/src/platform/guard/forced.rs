// SPDX-License-Identifier: Apache-2.0
// COLD (only in libraries built for tests: feature `forced-panics`)
//! Panics on demand. Each guarded place has a name, `<file>:<line>` of its call of the guard. The
//! first time it is come by, a file of that name (`/` as `!`) appears in the folder that
//! `FORCED_FOLDER` names; the places that `FORCED_PLACE` names panic (at the last of them
//! `panicked` appears).

use std::ffi::CString;
use std::panic::Location;

use crate::platform::environment;

/// `body`, with what the test wants in front of it.
pub(super) fn before<R>(place: &'static Location<'static>, body: impl FnOnce() -> R) -> impl FnOnce() -> R {
    move || {
        come_by(place);
        body()
    }
}

#[expect(clippy::panic, reason = "what this is for")]
fn come_by(place: &Location<'_>) {
    let Some(folder) = environment::text("FORCED_FOLDER") else { return };
    let name = format!("{}:{}", place.file(), place.line());
    appears(folder, &name.replace('/', "!"));
    let forced = environment::text("FORCED_PLACE").unwrap_or("");
    if forced.split(',').any(|one| one == name) {
        if forced.ends_with(&name) {
            appears(folder, "panicked");
        }
        panic!("forced at {name}");
    }
}

fn appears(folder: &str, name: &str) {
    let Ok(file) = CString::new(format!("{folder}/{name}")) else { return };
    // SAFETY: a C string and a mode.
    let fd = unsafe { libc::open(file.as_ptr(), libc::O_CREAT | libc::O_EXCL | libc::O_CLOEXEC, 0o600) };
    if fd >= 0 {
        // SAFETY: opened above, and nobody else's.
        unsafe { libc::close(fd) };
    }
}
