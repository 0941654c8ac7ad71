// SPDX-License-Identifier: Apache-2.0
// COLD
//! A CUDA runtime that is linked in, nvcc's default: it opens the driver, and asks it for all of
//! its functions, before it calls `cuInit`, where we attach. So our constructor leads it: `dlsym`
//! of the program, and of libraries that came with it, where they hold code for GPUs. Which do is
//! read off the file; the system's own libraries are not looked at, so that a shell pays for one
//! file. Of a library that is opened later the launches stay unseen, if its runtime is the first to
//! use CUDA.

use std::ffi::CStr;
use std::fs::File;
use std::ops::Range;
use std::os::fd::FromRawFd;
use std::os::unix::fs::FileExt;

use spool::elf::Head;

use crate::hooks::{dlsym, imports};
use crate::platform::loader;

/// Leads them. In the constructor.
#[cfg(target_arch = "x86_64")]
pub(crate) fn lead() {
    imports::rewrite(&mut LinkedIn);
}

/// Elsewhere `dlsym` in the place of the program's cannot tell who asks (`hooks::dlsym`).
#[cfg(not(target_arch = "x86_64"))]
pub(crate) fn lead() {}

struct LinkedIn;

impl imports::Rewrite for LinkedIn {
    fn wants(&mut self, object: &[u8]) -> bool {
        if object.is_empty() {
            return has_gpu_code(c"/proc/self/exe");
        }
        let mut path = [0u8; libc::PATH_MAX as usize];
        let Some(room) = path.get_mut(..object.len()).filter(|_| is_looked_at(object)) else { return false };
        room.copy_from_slice(object);
        CStr::from_bytes_until_nul(&path).is_ok_and(has_gpu_code)
    }

    fn replacement(&mut self, name: &[u8], now: usize, own: &Range<u64>) -> Option<usize> {
        dlsym::in_slot_of_launcher(name, now, own)
    }
}

/// Neither the system's, nor CUDA's own, nor PyTorch's (they call the runtime's library), nor the
/// interpreter.
fn is_looked_at(path: &[u8]) -> bool {
    const SYSTEM: [&[u8]; 4] = [b"/lib/", b"/lib64/", b"/usr/lib/", b"/usr/lib64/"];
    const CUDAS: [&[u8]; 12] = [
        b"libcuda.",
        b"libcudart",
        b"libcublas",
        b"libcudnn",
        b"libcufft",
        b"libcurand",
        b"libcusolver",
        b"libcusparse",
        b"libcupti",
        b"libnpp",
        b"libnv",
        b"libnccl",
    ];
    const NOT: [&[u8]; 4] = [b"libtorch", b"libc10", b"libpython", b"libgapprobe"];
    let file = loader::file_name(path);
    path.contains(&b'/')
        && !SYSTEM.iter().any(|folder| path.starts_with(folder))
        && !CUDAS.iter().chain(&NOT).any(|name| file.starts_with(name))
}

/// What nvcc calls the part of a file that holds the code of kernels.
const CODE: &[u8] = b".nv_fatbin\0";
/// Parts of a file looked at, and bytes of their names.
const PIECE: usize = 4096;
const PIECES: usize = 4;

/// Has this file such a part? Allocates nothing: the loader's lock is held.
fn has_gpu_code(path: &CStr) -> bool {
    // SAFETY: a C string and flags. (`File::open` allocates where a path is long.)
    let file = unsafe { libc::open(path.as_ptr(), libc::O_RDONLY | libc::O_CLOEXEC) };
    if file < 0 {
        return false;
    }
    // SAFETY: our own descriptor, owned by nobody else.
    names_code(&unsafe { File::from_raw_fd(file) }) == Some(true)
}

/// `None`: it cannot be told.
fn names_code(file: &File) -> Option<bool> {
    let head = Head::read(file)?;
    let names = head.section(file, head.names)?;
    let (mut buffer, mut at) = ([0u8; PIECE], 0);
    // (pieces overlap by what a name's end may be cut off)
    for _ in 0..PIECES {
        let room = usize::try_from(names.length.checked_sub(at)?).ok()?.min(PIECE);
        let got = file.read_at(buffer.get_mut(..room)?, names.at.checked_add(at)?).ok()?;
        if buffer.get(..got)?.windows(CODE.len()).any(|name| name == CODE) {
            return Some(true);
        }
        if got < PIECE {
            return Some(false);
        }
        at += (PIECE - CODE.len()) as u64;
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn which_libraries_are_looked_at() {
        for path in ["/home/me/app/lib/libcustom_kernels.so", "./libkernels.so", "/opt/app/lib/libmine.so.1"]
        {
            assert!(is_looked_at(path.as_bytes()), "{path}");
        }
        for path in [
            "/usr/lib/x86_64-linux-gnu/libm.so.6",
            "linux-vdso.so.1",
            "/opt/cuda/lib64/libcublas.so.13",
            "/venv/nvidia/cu13/lib/libnccl.so.2",
            "/venv/torch/lib/libtorch_cuda.so",
        ] {
            assert!(!is_looked_at(path.as_bytes()), "{path}");
        }
    }

    #[test]
    fn code_for_gpus_is_told_by_a_name_in_the_file() {
        #[used]
        #[link_section = ".nv_fatbin"]
        static CODE: [u8; 4] = [0; 4];
        assert!(has_gpu_code(c"/proc/self/exe"));
        assert!(!has_gpu_code(c"/bin/sh"));
        assert!(!has_gpu_code(c"/proc/self/maps") && !has_gpu_code(c"/nonexistent"));
    }
}
