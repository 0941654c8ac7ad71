// SPDX-License-Identifier: Apache-2.0
//! Gives the engine the name by which programs and CUPTI find a driver: soname libcuda.so.1, never
//! unloaded.

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rustc-cdylib-link-arg=-Wl,-soname,libcuda.so.1");
    println!("cargo:rustc-cdylib-link-arg=-Wl,-z,nodelete");
}
