// SPDX-License-Identifier: Apache-2.0
//! Link arguments of `libgapprobe.so`. `scripts/check-library` reads off the file that they took
//! effect.

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    // Never unloaded: CUPTI, the driver and atexit keep pointers into it, and NVTX closes what it
    // loaded.
    println!("cargo:rustc-cdylib-link-arg=-Wl,-z,nodelete");
    // Everything resolved at load: no lazy binding, whose first call takes the loader's lock, on a
    // hot path.
    println!("cargo:rustc-cdylib-link-arg=-Wl,-z,now");
    // The clock and the sleeps are libc's own, also beside a preloaded library that defines them
    // anew (src/clock.rs).
    for function in ["clock_gettime", "clock_nanosleep", "nanosleep"] {
        println!("cargo:rustc-cdylib-link-arg=-Wl,--wrap={function}");
    }
}
