// SPDX-License-Identifier: Apache-2.0
//! Finds CUPTI's functions in a library that is already open.
//!
//! What lives here: `dlsym` into a table of function pointers. What must not: opening or choosing a
//! library, calling any `cupti*` function, state. COLD: once at attach. Nothing is allocated but
//! what `dlsym` itself does.
//!
//! No `cupti*` function may be called before libcuda.so.1 is mapped: some releases crash.
//! Resolving is safe.

use crate::bindings::*;
use crate::CuptiResult;
use core::ffi::{c_void, CStr};
use core::fmt;

/// `cuptiSubscribe_v2`; the last argument is a `CUpti_SubscriberParams`, which is not looked at.
pub type SubscribeV2 = unsafe extern "C" fn(
    *mut CUpti_SubscriberHandle,
    CUpti_CallbackFunc,
    *mut c_void,
    *mut c_void,
) -> CuptiResult;

/// A required function that the library does not have: it is no CUPTI we can use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MissingSymbol {
    /// The name that could not be resolved.
    pub symbol: &'static CStr,
}

impl fmt::Display for MissingSymbol {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "the library has no {}", self.symbol.to_string_lossy())
    }
}

impl std::error::Error for MissingSymbol {}

/// Turns one address into one function pointer of the field's type.
///
/// # Safety
/// `address` must be the address of a function with the signature that `F` has, and `F` a function
/// pointer type.
unsafe fn function<F: Copy>(address: *mut c_void) -> F {
    const { assert!(size_of::<F>() == size_of::<*mut c_void>()) };
    // SAFETY: same size (asserted above); the caller vouches for the signature.
    unsafe { core::mem::transmute_copy(&address) }
}

macro_rules! table {
    (
        required { $($(#[$required_doc:meta])* $required:ident: $required_type:ty = $required_symbol:literal;)* }
        optional { $($(#[$optional_doc:meta])* $optional:ident: $optional_type:ty = $optional_symbol:literal;)* }
    ) => {
        /// The functions of one libcupti. Required ones exist in every release from 11.7 to 13.5;
        /// the others are `None` where the release has no such function.
        ///
        /// Every field is a raw C function: calling one is `unsafe` and subject to CUPTI's rules.
        /// The library must stay open for as long as the table is used (open it with RTLD_NODELETE,
        /// or keep a reference for ever).
        #[derive(Debug, Clone, Copy)]
        pub struct Cupti {
            $($(#[$required_doc])* pub $required: $required_type,)*
            $($(#[$optional_doc])* pub $optional: Option<$optional_type>,)*
        }

        impl Cupti {
            /// Names of the functions without which a library is refused.
            pub const REQUIRED: &'static [&'static CStr] = &[$($required_symbol),*];
            /// Names of the functions that a release may lack.
            pub const OPTIONAL: &'static [&'static CStr] = &[$($optional_symbol),*];

            /// Fills the table, asking `resolve` for each name.
            ///
            /// # Safety
            /// An address that `resolve` returns for a name must be that CUPTI function (or null).
            unsafe fn from_resolver(resolve: impl Fn(&CStr) -> *mut c_void) -> Result<Self, MissingSymbol> {
                Ok(Self {
                    $($required: {
                        let address = resolve($required_symbol);
                        if address.is_null() {
                            return Err(MissingSymbol { symbol: $required_symbol });
                        }
                        // SAFETY: not null, and the caller vouches that it is the function of this
                        // name.
                        unsafe { function::<$required_type>(address) }
                    },)*
                    $($optional: {
                        let address = resolve($optional_symbol);
                        // SAFETY: not null, and the caller vouches that it is the function of this
                        // name.
                        (!address.is_null()).then(|| unsafe { function::<$optional_type>(address) })
                    },)*
                })
            }
        }
    };
}

table! {
    required {
        /// Takes the one subscription of the process (V1).
        subscribe: cuptiSubscribe_fn = c"cuptiSubscribe";
        /// Gives the subscription up.
        unsubscribe: cuptiUnsubscribe_fn = c"cuptiUnsubscribe";
        /// Switches the callback of one call on or off. Calls must be serialised by the subscriber.
        enable_callback: cuptiEnableCallback_fn = c"cuptiEnableCallback";
        /// Switches all callbacks of a domain on or off.
        enable_domain: cuptiEnableDomain_fn = c"cuptiEnableDomain";
        /// Switches a kind of record on, for the whole process.
        activity_enable: cuptiActivityEnable_fn = c"cuptiActivityEnable";
        /// Switches a kind of record off, for the whole process.
        activity_disable: cuptiActivityDisable_fn = c"cuptiActivityDisable";
        /// Says who lends and receives buffers; replaces any earlier client's.
        activity_register_callbacks: cuptiActivityRegisterCallbacks_fn = c"cuptiActivityRegisterCallbacks";
        /// Hands buffers back: 0 = those whose records are complete, `flag::FLUSH_FORCED` = all.
        /// Never under a lock.
        activity_flush_all: cuptiActivityFlushAll_fn = c"cuptiActivityFlushAll";
        /// Steps through a buffer; the only way to step.
        activity_get_next_record: cuptiActivityGetNextRecord_fn = c"cuptiActivityGetNextRecord";
        /// Records dropped since the last call.
        activity_get_num_dropped_records: cuptiActivityGetNumDroppedRecords_fn =
            c"cuptiActivityGetNumDroppedRecords";
        /// Sets one of [`crate::attribute`].
        activity_set_attribute: cuptiActivitySetAttribute_fn = c"cuptiActivitySetAttribute";
        /// Replaces CUPTI's clock; before any kind is enabled; null is rejected.
        activity_register_timestamp_callback: cuptiActivityRegisterTimestampCallback_fn =
            c"cuptiActivityRegisterTimestampCallback";
        /// What thread ids in API records are (`thread_id_type::SYSTEM` = gettid).
        set_thread_id_type: cuptiSetThreadIdType_fn = c"cuptiSetThreadIdType";
        /// CUPTI's clock, in ns.
        get_timestamp: cuptiGetTimestamp_fn = c"cuptiGetTimestamp";
        /// The number that [`crate::release_from`] reads.
        get_version: cuptiGetVersion_fn = c"cuptiGetVersion";
        /// NVIDIA's name of a result code; [`crate::CuptiResult`] has the names without a call.
        get_result_string: cuptiGetResultString_fn = c"cuptiGetResultString";
    }
    optional {
        /// Reads one of [`crate::attribute`].
        activity_get_attribute: cuptiActivityGetAttribute_fn = c"cuptiActivityGetAttribute";
        /// Lets CUPTI's own thread hand back full buffers every so many ms.
        activity_flush_period: cuptiActivityFlushPeriod_fn = c"cuptiActivityFlushPeriod";
        /// Records of one runtime call without the kind RUNTIME (12.5+).
        activity_enable_runtime_api: cuptiActivityEnableRuntimeApi_fn = c"cuptiActivityEnableRuntimeApi";
        /// Records of one driver call without the kind DRIVER (12.5+).
        activity_enable_driver_api: cuptiActivityEnableDriverApi_fn = c"cuptiActivityEnableDriverApi";
        /// The kinds switched on, by whomever (13.2+).
        activity_get_enabled_kinds: cuptiActivityGetEnabledKinds_fn = c"cuptiActivityGetEnabledKinds";
        /// The size of a kind's record (13.2+).
        activity_get_struct_size: cuptiActivityGetStructSize_fn = c"cuptiActivityGetStructSize";
        /// Records of synchronizing calls that found nothing to wait for (12.8+).
        activity_enable_all_sync_records: cuptiActivityEnableAllSyncRecords_fn =
            c"cuptiActivityEnableAllSyncRecords";
        /// Device timestamps in CUDA event records (13.0+).
        activity_enable_cuda_event_device_timestamps: cuptiActivityEnableCudaEventDeviceTimestamps_fn =
            c"cuptiActivityEnableCudaEventDeviceTimestamps";
        /// Records of graphs launched by the device (12.3+).
        activity_enable_device_graph: cuptiActivityEnableDeviceGraph_fn = c"cuptiActivityEnableDeviceGraph";
        /// Puts an id of the client's on the calling thread's next API records.
        activity_push_external_correlation_id: cuptiActivityPushExternalCorrelationId_fn =
            c"cuptiActivityPushExternalCorrelationId";
        /// Takes it off again.
        activity_pop_external_correlation_id: cuptiActivityPopExternalCorrelationId_fn =
            c"cuptiActivityPopExternalCorrelationId";
        /// Whether one callback of our subscription is on.
        get_callback_state: cuptiGetCallbackState_fn = c"cuptiGetCallbackState";
        /// The C name of a callback id.
        get_callback_name: cuptiGetCallbackName_fn = c"cuptiGetCallbackName";
        /// A sentence for a result code (12.2+).
        get_error_message: cuptiGetErrorMessage_fn = c"cuptiGetErrorMessage";
        /// What thread ids in API records are now.
        get_thread_id_type: cuptiGetThreadIdType_fn = c"cuptiGetThreadIdType";
        /// CUPTI's id of a context's device.
        get_device_id: cuptiGetDeviceId_fn = c"cuptiGetDeviceId";
        /// CUPTI's id of a context.
        get_context_id: cuptiGetContextId_fn = c"cuptiGetContextId";
        /// CUPTI's id of a stream.
        get_stream_id_ex: cuptiGetStreamIdEx_fn = c"cuptiGetStreamIdEx";
        /// CUPTI's id of a graph.
        get_graph_id: cuptiGetGraphId_fn = c"cuptiGetGraphId";
        /// CUPTI's id of a node of a graph.
        get_graph_node_id: cuptiGetGraphNodeId_fn = c"cuptiGetGraphNodeId";
        /// CUPTI's id of an executable graph (12.3+).
        get_graph_exec_id: cuptiGetGraphExecId_fn = c"cuptiGetGraphExecId";
        /// Tears CUPTI down for everybody. To forward another client's call, and to make room for a
        /// client of the V2 API.
        finalize: cuptiFinalize_fn = c"cuptiFinalize";
        /// A client of the V2 API subscribes (13.0+). Never ours to call: here to forward another
        /// client's call.
        subscribe_v2: SubscribeV2 = c"cuptiSubscribe_v2";
    }
}

impl Cupti {
    /// True if records of single calls can be switched on without the flood of a whole domain (12.5
    /// and newer).
    #[must_use]
    pub fn has_call_filter(&self) -> bool {
        self.activity_enable_runtime_api.is_some() && self.activity_enable_driver_api.is_some()
    }

    /// Walks a buffer that CUPTI handed back, with CUPTI's own stepping: calls `each` with every
    /// record, in order, as the bytes from the record to the end of the valid part
    /// ([`crate::record`] reads them; the next record begins somewhere in them). Returns how it
    /// ended: [`CuptiResult::NO_MORE_RECORDS`] if every byte was walked, else the library's error,
    /// and what follows in the buffer is lost (an unknown kind: `INVALID_KIND`, in 11.8 `UNKNOWN`).
    ///
    /// # Safety
    /// `buffer` must be aligned to 8 bytes and valid for reads of `valid` bytes until this returns,
    /// and nothing may write to it meanwhile. CUPTI must be callable (libcuda is mapped).
    pub unsafe fn for_each_record(
        &self,
        buffer: *mut u8,
        valid: usize,
        mut each: impl FnMut(&[u8]),
    ) -> CuptiResult {
        let mut record: *mut CUpti_Activity = core::ptr::null_mut();
        loop {
            // SAFETY: the caller vouches for the buffer; `record` is null or what this function
            // gave for it before.
            let answer = unsafe { (self.activity_get_next_record)(buffer, valid, &raw mut record) };
            if !answer.is_success() {
                return answer;
            }
            let offset = (record as usize).wrapping_sub(buffer as usize);
            if offset >= valid {
                return CuptiResult::UNKNOWN; // No release does that; without the check a broken one would cost us UB.
            }
            // SAFETY: within the `valid` bytes that the caller vouches for.
            each(unsafe { core::slice::from_raw_parts(record.cast::<u8>(), valid - offset) });
        }
    }
}

/// Resolves CUPTI's functions in an open library.
///
/// # Errors
/// [`MissingSymbol`] names the first required function the library lacks.
///
/// # Safety
/// `handle` must come from `dlopen`, be open still, and stay so while the table is used; the
/// library must be CUPTI where it exports CUPTI's names (a stranger under the same names would be
/// called with NVIDIA's signatures). `RTLD_DEFAULT` (null) finds the copy that other clients would
/// reach, interposed wrappers of ours included.
pub unsafe fn open_handle(handle: *mut c_void) -> Result<Cupti, MissingSymbol> {
    let resolve = |name: &CStr| {
        // SAFETY: the caller vouches for the handle; the name is a C string.
        unsafe { libc::dlsym(handle, name.as_ptr()) }
    };
    // SAFETY: dlsym gives the address of the library's function of that name, which the caller says
    // is CUPTI's.
    unsafe { Cupti::from_resolver(resolve) }
}

#[cfg(test)]
mod tests {
    use super::{open_handle, Cupti};
    use core::ffi::c_void;

    extern "C" fn stand_in() {}

    #[test]
    fn a_library_without_cupti_is_refused_by_name() {
        // SAFETY: libc itself, always mapped.
        let handle = unsafe { libc::dlopen(c"libc.so.6".as_ptr(), libc::RTLD_NOW) };
        assert!(!handle.is_null());
        // SAFETY: an open handle; no function is called.
        let error = unsafe { open_handle(handle) }.map(|_| ()).unwrap_err();
        assert_eq!(error.to_string(), "the library has no cuptiSubscribe");
    }

    #[test]
    fn each_required_symbol_is_missed_and_no_optional_one() {
        let address = stand_in as *mut c_void;
        for missing in Cupti::REQUIRED {
            // SAFETY: nothing in the table is called.
            let table = unsafe {
                Cupti::from_resolver(|name| if name == *missing { core::ptr::null_mut() } else { address })
            };
            assert_eq!(table.map(|_| ()).unwrap_err().symbol, *missing);
        }
        for missing in Cupti::OPTIONAL {
            // SAFETY: nothing in the table is called.
            let table = unsafe {
                Cupti::from_resolver(|name| if name == *missing { core::ptr::null_mut() } else { address })
            };
            assert!(table.is_ok());
        }
    }

    #[test]
    fn the_call_filter_needs_both_functions() {
        let address = stand_in as *mut c_void;
        let filter = |absent: &'static [&'static core::ffi::CStr]| {
            // SAFETY: nothing in the table is called.
            unsafe {
                Cupti::from_resolver(
                    |name| if absent.contains(&name) { core::ptr::null_mut() } else { address },
                )
            }
            .map(|table| table.has_call_filter())
        };
        assert_eq!(filter(&[]), Ok(true));
        assert_eq!(filter(&[c"cuptiActivityEnableDriverApi"]), Ok(false));
        assert_eq!(filter(&[c"cuptiActivityEnableRuntimeApi"]), Ok(false));
    }
}
