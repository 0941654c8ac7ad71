// SPDX-License-Identifier: Apache-2.0
//! CUPTI's V2 API, as far as one client with one kind of user-defined records needs
//! it, and what keeps it and V1 apart: what each call answers beside the other was read off CUPTI
//! 13.3.75, 13.4.92 and 13.5.25 on an H200, driver 580 (`tests/gpu/programs/v2_client.c`).

use super::layout::{kind, record_size, release};
use super::{activity, buffers, subscriber};
use crate::foreign::lock;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::Mutex;

/// `void (*)(uint8_t **buffer, size_t *size, size_t *maxNumRecords, CUpti_BufferCallbackRequestInfo
/// *)`.
pub(crate) type Request = extern "C" fn(*mut *mut u8, *mut usize, *mut usize, *const usize);
/// `void (*)(uint8_t *buffer, size_t size, size_t validSize, CUpti_BufferCallbackCompleteInfo *)`.
pub(crate) type Complete = extern "C" fn(*mut u8, usize, usize, *const Completed);

/// CUpti_BufferCallbackCompleteInfo.
#[repr(C)]
pub(crate) struct Completed {
    size: usize,
    thread: u64,
    layouts: *const *const Layout,
    count: usize,
}

/// CUpti_ActivityRecordLayout.
#[repr(C)]
struct Layout {
    size: usize,
    entries: *const Entry,
    count: usize,
    record: usize,
}

/// CUpti_ActivityFieldLayoutEntry.
#[repr(C)]
struct Entry {
    size: usize,
    field: i32,
    offset: usize,
    bytes: usize,
    alignment: usize,
}

/// Fields of kernels: their ids, where V1's record has them, and their bytes.
const FIELDS: [(i32, usize, usize); 4] = [(0, 0, 4), (7, 16, 8), (8, 24, 8), (22, 92, 4)];
/// Each takes eight bytes of a user-defined record.
const RECORD: usize = FIELDS.len() * 8;

#[derive(Default)]
struct Client {
    handle: Option<usize>,
    user_defined: bool,
    buffers: Option<(Request, Complete)>,
}

static CLIENT: Mutex<Client> = Mutex::new(Client { handle: None, user_defined: false, buffers: None });
/// V1's activity API was used: until CUPTI is torn down.
static V1_USED: AtomicBool = AtomicBool::new(false);
/// ... by a client that has not given a subscription up since.
static V1_IS_HERE: AtomicBool = AtomicBool::new(false);

/// V1 registers buffers or switches a kind on. `false`: V2 has CUPTI.
pub(crate) fn v1_may_record() -> bool {
    if is_held() {
        return false;
    }
    V1_USED.store(true, Ordering::Relaxed);
    V1_IS_HERE.store(true, Ordering::Relaxed);
    true
}

/// May V1 subscribe? One that tries and is refused counts as there all the same: V2 cannot
/// subscribe anew.
pub(crate) fn v1_may_subscribe() -> bool {
    let is_held = is_held();
    V1_IS_HERE.fetch_or(is_held, Ordering::Relaxed);
    !is_held
}

/// V1 gave its subscription up.
pub(crate) fn v1_unsubscribed() {
    V1_IS_HERE.store(false, Ordering::Relaxed);
}

/// CUPTI is torn down.
pub(crate) fn forget() {
    *lock(&CLIENT) = Client::default();
    [&V1_USED, &V1_IS_HERE].iter().for_each(|used| used.store(false, Ordering::Relaxed));
}

fn is_held() -> bool {
    lock(&CLIENT).handle.is_some()
}

/// Is it this client's?
pub(crate) fn holds(handle: usize) -> bool {
    lock(&CLIENT).handle == Some(handle)
}

/// A V2 client subscribes; `None`: V1 is in use.
pub(crate) fn subscribe() -> Option<usize> {
    if V1_IS_HERE.load(Ordering::Relaxed) || subscriber::held() || is_held() {
        return None;
    }
    let handle = 0x5632_0000;
    lock(&CLIENT).handle = Some(handle);
    Some(handle)
}

/// It goes.
pub(crate) fn unsubscribe() {
    *lock(&CLIENT) = Client::default();
}

/// CUPTI_ACTIVITY_ATTR_USER_DEFINED_RECORDS.
pub(crate) fn set_user_defined(on: bool) {
    lock(&CLIENT).user_defined = on;
}

/// Its buffers.
pub(crate) fn register(request: Request, complete: Complete) {
    lock(&CLIENT).buffers = Some((request, complete));
    buffers::register(asked, completed);
}

/// Switches a kind; `false`: V1 was used, and CUPTI was not torn down since.
pub(crate) fn enable(kind: u32, on: bool) -> bool {
    !V1_USED.load(Ordering::Relaxed) && activity::set_kind(kind, on)
}

extern "C" fn asked(buffer: *mut *mut u8, size: *mut usize, most: *mut usize) {
    let client = lock(&CLIENT).buffers;
    if let Some((request, _)) = client {
        request(buffer, size, most, &size_of::<usize>());
    }
}

extern "C" fn completed(_context: usize, _stream: u32, buffer: *mut u8, size: usize, valid: usize) {
    let (client, user_defined) = {
        let client = lock(&CLIENT);
        (client.buffers, client.user_defined)
    };
    let Some((_, complete)) = client else { return };
    let entry = |(n, (field, _, bytes)): (usize, &(i32, usize, usize))| Entry {
        size: size_of::<Entry>(),
        field: *field,
        offset: n * 8,
        bytes: *bytes,
        alignment: *bytes,
    };
    let entries: Vec<Entry> = FIELDS.iter().enumerate().map(entry).collect();
    let layout =
        Layout { size: size_of::<Layout>(), entries: entries.as_ptr(), count: entries.len(), record: RECORD };
    let layouts = [std::ptr::from_ref(&layout)];
    let (valid, count) = match user_defined {
        true => (cut(buffer, valid), 1),
        false => (valid, 0),
    };
    let told = Completed { size: size_of::<Completed>(), thread: 0, layouts: layouts.as_ptr(), count };
    complete(buffer, size, valid, &told);
}

/// Whole records of kernels become user-defined ones, in place; the bytes that they take.
fn cut(buffer: *mut u8, valid: usize) -> usize {
    let length = record_size(kind::CONCURRENT_KERNEL, release()).unwrap_or(valid.max(1));
    let records = valid / length;
    for n in 0..records {
        let mut record = [0u8; RECORD];
        for (place, (_, at, bytes)) in record.chunks_exact_mut(8).zip(FIELDS) {
            // SAFETY: record `n` of the client's buffer, whose valid part holds `records` whole
            // ones.
            unsafe {
                std::ptr::copy_nonoverlapping(buffer.add(n * length + at), place.as_mut_ptr(), bytes);
            }
        }
        // SAFETY: as above; a shorter record at an earlier place, where nothing is read any more.
        unsafe { std::ptr::copy_nonoverlapping(record.as_ptr(), buffer.add(n * RECORD), RECORD) };
    }
    records * RECORD
}
