// SPDX-License-Identifier: Apache-2.0
//! The loader on the real libraries: what each release has and lacks. Resolving only; no function
//! of CUPTI is called.

use std::ffi::{c_void, CString};
use std::os::unix::ffi::OsStrExt;

use cupti_sys::{open_handle, Cupti};

use crate::fields::release_of;
use crate::wheels::Wheel;

/// Opens a library for itself alone and for ever.
pub(crate) fn open(wheel: &Wheel) -> *mut c_void {
    let path = CString::new(wheel.library.as_os_str().as_bytes()).expect("a path");
    // SAFETY: NVIDIA's library, whose constructors run in every process that links it; the path is
    // a C string.
    let handle =
        unsafe { libc::dlopen(path.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL | libc::RTLD_NODELETE) };
    assert!(!handle.is_null(), "dlopen {}", wheel.library.display());
    handle
}

/// The functions of a release.
pub(crate) fn functions(wheel: &Wheel) -> Cupti {
    // SAFETY: the handle of a real libcupti, never closed.
    unsafe { open_handle(open(wheel)) }.unwrap_or_else(|error| panic!("CUPTI {}: {error}", wheel.release))
}

#[test]
fn every_release_has_what_we_require_and_the_optional_functions_of_its_age() {
    let Some(wheels) = Wheel::all() else { return };
    for wheel in wheels {
        let cupti = functions(&wheel);
        let release = release_of(&wheel);
        let since = |major, minor| release.is_at_least(major, minor);
        let rows = [
            ("the call filter", cupti.has_call_filter(), since(12, 5)),
            ("GetErrorMessage", cupti.get_error_message.is_some(), since(12, 2)),
            ("GetGraphExecId", cupti.get_graph_exec_id.is_some(), since(12, 3)),
            ("EnableDeviceGraph", cupti.activity_enable_device_graph.is_some(), since(12, 3)),
            ("EnableAllSyncRecords", cupti.activity_enable_all_sync_records.is_some(), since(12, 8)),
            (
                "EnableCudaEventDeviceTimestamps",
                cupti.activity_enable_cuda_event_device_timestamps.is_some(),
                since(13, 0),
            ),
            ("GetEnabledKinds", cupti.activity_get_enabled_kinds.is_some(), since(13, 2)),
            ("GetStructSize", cupti.activity_get_struct_size.is_some(), since(13, 2)),
            ("GetCallbackName", cupti.get_callback_name.is_some(), true),
            ("FlushPeriod", cupti.activity_flush_period.is_some(), true),
            ("Finalize", cupti.finalize.is_some(), true),
        ];
        for (what, found, expected) in rows {
            assert_eq!(found, expected, "CUPTI {}: {what}", wheel.release);
        }
    }
}
