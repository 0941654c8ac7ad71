// SPDX-License-Identifier: Apache-2.0
// WARM
//! What the driver says of a device.

use std::ffi::c_char;

use trace::DeviceInfo;

use crate::sources::cupti::{choose, session};

/// What the driver says of a device: plain attribute queries that need no context and touch no
/// stream.
pub(crate) fn describe(ordinal: u32) -> Option<(DeviceInfo, Vec<u8>)> {
    type GetAttribute = unsafe extern "C" fn(*mut i32, i32, i32) -> u32;
    type GetMemory = unsafe extern "C" fn(*mut usize, i32) -> u32;
    type GetName = unsafe extern "C" fn(*mut c_char, i32, i32) -> u32;
    const MULTIPROCESSOR_COUNT: i32 = 16;
    const COMPUTE_MAJOR: i32 = 75;
    const COMPUTE_MINOR: i32 = 76;
    let driver = choose::driver()?;
    let address = session::symbol(&driver, c"cuDeviceGetAttribute")?;
    // SAFETY: the driver's documented signature; device handles are ordinals.
    let get: GetAttribute = unsafe { std::mem::transmute(address) };
    let attribute = |id: i32| {
        let mut value = 0;
        // SAFETY: a valid out-pointer.
        let result = unsafe { get(&mut value, id, ordinal as i32) };
        if result == 0 {
            value.max(0) as u32
        } else {
            0
        }
    };
    let mut name = [0u8; 96];
    if let Some(address) = session::symbol(&driver, c"cuDeviceGetName") {
        // SAFETY: the driver's documented signature.
        let get: GetName = unsafe { std::mem::transmute(address) };
        // SAFETY: a buffer and its length.
        unsafe { get(name.as_mut_ptr().cast(), name.len() as i32, ordinal as i32) };
    }
    let name = name.split(|b| *b == 0).next().unwrap_or(&[]).to_vec();
    let memory = session::symbol(&driver, c"cuDeviceTotalMem_v2").map_or(0, |address| {
        // SAFETY: the driver's documented signature.
        let get: GetMemory = unsafe { std::mem::transmute(address) };
        let mut bytes = 0;
        // SAFETY: a valid out-pointer.
        let result = unsafe { get(&mut bytes, ordinal as i32) };
        if result == 0 {
            bytes as u64
        } else {
            0
        }
    });
    let info = DeviceInfo {
        memory,
        multiprocessors: attribute(MULTIPROCESSOR_COUNT),
        compute_major: attribute(COMPUTE_MAJOR),
        compute_minor: attribute(COMPUTE_MINOR),
        ..DeviceInfo::default()
    };
    Some((info, name))
}

/// Its UUID as NVML and DCGM write it. Of a slice of a GPU (MIG) it is that of the whole GPU.
pub(crate) fn uuid(ordinal: u32) -> Option<String> {
    type GetUuid = unsafe extern "C" fn(*mut [u8; 16], i32) -> u32;
    let address = session::symbol(&choose::driver()?, c"cuDeviceGetUuid")?;
    // SAFETY: the driver's documented signature; device handles are ordinals.
    let get: GetUuid = unsafe { std::mem::transmute(address) };
    let mut bytes = [0; 16];
    // SAFETY: a valid out-pointer.
    (unsafe { get(&mut bytes, ordinal as i32) } == 0).then(|| uuid_text(&bytes))
}

/// `GPU-` and 8-4-4-4-12 hexadecimal digits.
fn uuid_text(bytes: &[u8; 16]) -> String {
    let mut text = String::from("GPU-");
    for (n, byte) in bytes.iter().enumerate() {
        if matches!(n, 4 | 6 | 8 | 10) {
            text.push('-');
        }
        text.push_str(&format!("{byte:02x}"));
    }
    text
}

#[cfg(test)]
mod tests {
    #[test]
    fn a_uuid_is_written_as_nvml_does() {
        let bytes = [0x8a, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 0xff];
        assert_eq!(super::uuid_text(&bytes), "GPU-8a010203-0405-0607-0809-0a0b0c0d0eff");
    }
}
