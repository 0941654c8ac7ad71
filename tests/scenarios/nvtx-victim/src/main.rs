// SPDX-License-Identifier: Apache-2.0
//! A victim: a Rust program with real NVTX v3 ranges (NVIDIA's crate) around its launches on the
//! simulated driver.
//!
//! usage: nvtx_ranges STEPS. Prints "launched N".

use std::ffi::{c_char, c_int, c_uint, c_void, CStr, CString};

#[repr(C)]
#[derive(Clone, Copy)]
struct Dim3(c_uint, c_uint, c_uint);

type Register = unsafe extern "C" fn(*const c_char, u64) -> c_int;
type Launch = unsafe extern "C" fn(*const c_void, Dim3, Dim3, *mut *mut c_void, usize, *mut c_void) -> c_int;
type Synchronize = unsafe extern "C" fn() -> c_int;

fn symbol(library: &CStr, name: &CStr) -> *mut c_void {
    // SAFETY: C strings; the simulated libraries have harmless constructors.
    let handle = unsafe { libc::dlopen(library.as_ptr(), libc::RTLD_LAZY | libc::RTLD_GLOBAL) };
    assert!(!handle.is_null(), "{library:?}");
    // SAFETY: an open handle and a C string.
    let address = unsafe { libc::dlsym(handle, name.as_ptr()) };
    assert!(!address.is_null(), "{name:?}");
    address
}

fn main() {
    let steps: u32 = std::env::args().nth(1).and_then(|n| n.parse().ok()).unwrap_or(10);
    // SAFETY: the simulated driver's documented signature.
    let register: Register = unsafe { std::mem::transmute(symbol(c"libcuda.so.1", c"simRegisterKernel")) };
    // SAFETY: the runtime's documented signature.
    let launch: Launch = unsafe { std::mem::transmute(symbol(c"libcudart.so", c"cudaLaunchKernel")) };
    // SAFETY: the runtime's documented signature.
    let synchronize: Synchronize =
        unsafe { std::mem::transmute(symbol(c"libcudart.so", c"cudaDeviceSynchronize")) };
    // SAFETY: a C string that lives for ever.
    let kernel = unsafe { register(c"nvtx_kernel".as_ptr(), 10_000) } as usize as *const c_void;
    let one = Dim3(64, 1, 1);
    for step in 0..steps {
        let _step = nvtx::LocalRange::new(CString::new(format!("step {step}")).expect("no zero"));
        nvtx::mark(c"begin");
        for _ in 0..20 {
            let _forward = nvtx::LocalRange::new(c"forward");
            // SAFETY: a registered kernel, no parameters, the default stream.
            assert_eq!(unsafe { launch(kernel, one, one, std::ptr::null_mut(), 0, std::ptr::null_mut()) }, 0);
        }
        // SAFETY: takes nothing.
        assert_eq!(unsafe { synchronize() }, 0);
    }
    println!("launched {}", steps * 20);
}
