// SPDX-License-Identifier: Apache-2.0
//! CUDA called from functions of Rust, as `callers.c` does it from C: function N fills N bytes and
//! waits.

use std::ffi::c_void;
use std::hint::black_box;

use layers::Layer;

extern "C" {
    fn cudaMalloc(out: *mut *mut c_void, bytes: usize) -> i32;
    fn cudaMemsetAsync(at: *mut c_void, value: i32, bytes: usize, stream: *mut c_void) -> i32;
    fn cudaStreamSynchronize(stream: *mut c_void) -> i32;
}

mod layers {
    use std::ffi::c_void;

    pub(super) trait Layer {
        fn wait(&self, memory: *mut c_void);
    }

    pub(super) struct Eleven;
    pub(super) struct Twelve;

    #[inline(always)]
    fn fill_and_wait(memory: *mut c_void, bytes: usize) {
        // SAFETY: memory of the driver's, 4096 bytes of it.
        let code = unsafe { super::cudaMemsetAsync(memory, 0, bytes, std::ptr::null_mut()) };
        assert_eq!(std::hint::black_box(code), 0);
        // SAFETY: the default stream.
        let code = unsafe { super::cudaStreamSynchronize(std::ptr::null_mut()) };
        assert_eq!(std::hint::black_box(code), 0);
    }

    #[inline(never)]
    pub(super) fn function_11(memory: *mut c_void) {
        fill_and_wait(memory, 11);
    }

    impl Layer for Eleven {
        fn wait(&self, memory: *mut c_void) {
            function_11(memory);
        }
    }

    impl Layer for Twelve {
        #[inline(never)]
        fn wait(&self, memory: *mut c_void) {
            fill_and_wait(memory, 12);
        }
    }
}

fn main() {
    let mut memory = std::ptr::null_mut();
    // SAFETY: a valid out-pointer.
    assert_eq!(unsafe { cudaMalloc(&mut memory, 4096) }, 0);
    for _ in 0..100 {
        layers::Eleven.wait(memory);
        black_box(&layers::Twelve as &dyn layers::Layer).wait(memory);
        std::thread::sleep(std::time::Duration::from_micros(300));
    }
    println!("done");
}
