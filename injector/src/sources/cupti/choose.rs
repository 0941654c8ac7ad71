// SPDX-License-Identifier: Apache-2.0
// COLD
//! Which libcupti: the copy already in the process, else the one beside the process's libcudart
//! (same major), else `GAPPROBE_CUPTI`, else the toolkit's. Never a second copy: two silence both
//! clients (measured on the H200). Nothing here calls into CUPTI; some releases crash when called
//! before libcuda is mapped.

use std::ffi::{c_int, c_void, CStr, CString, OsStr};
use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::ptr::NonNull;

use crate::platform::environment;
use crate::platform::guard::guard;
use crate::platform::loader::{self, Library};

/// Paths of all mapped shared objects. No file is opened: the loader's own list.
pub(crate) fn mapped() -> Vec<PathBuf> {
    unsafe extern "C" fn collect(info: *mut libc::dl_phdr_info, _size: usize, data: *mut c_void) -> c_int {
        guard(1, || {
            // SAFETY: `data` is the Vec that `mapped` passed, alive during the walk.
            let list = unsafe { &mut *data.cast::<Vec<PathBuf>>() };
            // SAFETY: the loader passes a valid record.
            let name = unsafe { (*info).dlpi_name };
            if !name.is_null() {
                // SAFETY: a C string owned by the loader, valid during the callback.
                let name = unsafe { CStr::from_ptr(name) };
                list.push(PathBuf::from(OsStr::from_bytes(name.to_bytes())));
            }
            0
        })
    }
    let mut list: Vec<PathBuf> = Vec::new();
    // SAFETY: the callback only touches `list`.
    unsafe { loader::walk(collect, std::ptr::from_mut(&mut list).cast()) };
    list
}

fn file_name(path: &Path) -> &str {
    path.file_name().and_then(OsStr::to_str).unwrap_or("")
}

/// Is any of these libraries mapped (by a part of the path)? Allocates nothing: see [`copy_name`].
pub(crate) fn is_mapped(parts: &[&str]) -> bool {
    copy_name(parts, 0, &mut []).is_some()
}

/// Has the path this part? One that ends in a slash: is it what the path's folder ends in?
pub(crate) fn holds(path: &[u8], part: &str) -> bool {
    let part = part.as_bytes();
    if part.ends_with(b"/") {
        let folder = path.iter().rposition(|b| *b == b'/').and_then(|at| path.get(..=at));
        return folder.is_some_and(|folder| folder.ends_with(part));
    }
    path.windows(part.len().max(1)).any(|w| w == part)
}

/// Path of a mapped library that has one of these parts in its path, `skip` of them left out.
pub(crate) fn find(parts: &[&str], skip: usize) -> Option<PathBuf> {
    let mut name = [0; libc::PATH_MAX as usize];
    let length = copy_name(parts, skip, &mut name)?;
    Some(PathBuf::from(OsStr::from_bytes(name.get(..length)?)))
}

/// Copies as much of that path as there is room for; its length. Allocates nothing: asked again and
/// again, and what is refused memory inside of the loader's walk would stop with the loader's lock
/// (`heap`).
fn copy_name(parts: &[&str], skip: usize, out: &mut [u8]) -> Option<usize> {
    struct Search<'a> {
        parts: &'a [&'a str],
        skip: usize,
        out: &'a mut [u8],
        found: Option<usize>,
    }
    unsafe extern "C" fn compare(info: *mut libc::dl_phdr_info, _size: usize, data: *mut c_void) -> c_int {
        guard(1, || {
            // SAFETY: `data` is the Search that `copy_name` passed, alive during the walk.
            let search = unsafe { &mut *data.cast::<Search<'_>>() };
            // SAFETY: the loader passes a valid record.
            let name = unsafe { (*info).dlpi_name };
            if name.is_null() {
                return 0;
            }
            // SAFETY: a C string owned by the loader, valid during the callback.
            let name = unsafe { CStr::from_ptr(name) }.to_bytes();
            if !search.parts.iter().any(|part| holds(name, part)) {
                return 0;
            }
            if search.skip > 0 {
                search.skip -= 1;
                return 0;
            }
            search.out.iter_mut().zip(name).for_each(|(to, from)| *to = *from);
            search.found = Some(name.len());
            1
        })
    }
    let mut search = Search { parts, skip, out, found: None };
    // SAFETY: the callback only touches `search`.
    unsafe { loader::walk(compare, std::ptr::from_mut(&mut search).cast()) };
    search.found
}

/// Waits until those of these libraries that are mapped are loaded to the end, and keeps them.
/// `false`: none is mapped.
pub(crate) fn finish_loading(parts: &[&str]) -> bool {
    let mut is_mapped = false;
    for path in (0..MOST_ALIKE).map_while(|skip| find(parts, skip)) {
        is_mapped = true;
        open(&path, libc::RTLD_NOLOAD);
    }
    is_mapped
}

/// Libraries of one kind looked at.
const MOST_ALIKE: usize = 16;

/// Counter of the loader that changes whenever a library is mapped.
pub(crate) fn load_count() -> u64 {
    unsafe extern "C" fn first(info: *mut libc::dl_phdr_info, size: usize, data: *mut c_void) -> c_int {
        guard(1, || {
            if size >= std::mem::offset_of!(libc::dl_phdr_info, dlpi_adds) + 8 {
                // SAFETY: the record is long enough to have the field (checked).
                let adds = unsafe { (*info).dlpi_adds };
                // SAFETY: `data` is a u64 of `load_count`.
                unsafe { data.cast::<u64>().write(adds) };
            }
            1
        })
    }
    let mut count = 0u64;
    // SAFETY: the callback only writes `count`.
    unsafe { loader::walk(first, std::ptr::from_mut(&mut count).cast()) };
    count
}

fn open(path: &Path, flags: c_int) -> Option<Library> {
    let c = CString::new(path.as_os_str().as_bytes()).ok()?;
    // SAFETY: a C string; CUPTI's and CUDA's libraries have constructors that are safe to run at
    // any time.
    let handle = unsafe { libc::dlopen(c.as_ptr(), flags | libc::RTLD_LAZY) };
    NonNull::new(handle).map(|handle| Library { handle, path: path.to_string_lossy().into_owned() })
}

/// A library that is mapped, by a part of its path. Takes a reference.
pub(crate) fn open_mapped(part: &str) -> Option<Library> {
    open(&find(&[part], 0)?, libc::RTLD_NOLOAD)
}

/// Is the driver's library mapped? Before that, no `cupti*` call.
pub(crate) fn driver() -> Option<Library> {
    open(Path::new("libcuda.so.1"), libc::RTLD_NOLOAD)
}

/// The libcupti that is already in the process. Takes a reference.
pub(crate) fn already_mapped() -> Option<Library> {
    let own = mapped();
    let path = own.iter().find(|p| file_name(p).starts_with("libcupti.so"))?;
    open(path, libc::RTLD_NOLOAD)
}

/// The CUDA runtime of the process, if it has one and no more, as a library of its own. Takes a
/// reference.
pub(crate) fn only_runtime() -> Option<Library> {
    // wheels rename theirs: libcudart-d0da41ae.so.11.0
    const NAMES: &[&str] = &["/libcudart.so", "/libcudart-"];
    let path = find(NAMES, 0).filter(|_| find(NAMES, 1).is_none())?;
    open(&path, libc::RTLD_NOLOAD)
}

/// `13` of `libcudart.so.13` or `libcudart.so.12.4.127`.
fn major(name: &str) -> Option<u32> {
    name.split(".so.").nth(1)?.split('.').next()?.parse().ok()
}

fn beside_runtime() -> Vec<PathBuf> {
    let Some(runtime) = mapped().into_iter().find(|p| file_name(p).starts_with("libcudart.so")) else {
        return Vec::new();
    };
    let Some(directory) = runtime.parent() else { return Vec::new() };
    let major = major(file_name(&runtime)).unwrap_or(0);
    let places = [".", "../../cuda_cupti/lib", "../extras/CUPTI/lib64", "../../extras/CUPTI/lib64"];
    places.iter().flat_map(|place| candidates(&directory.join(place), major)).collect()
}

/// libcupti files of a directory, of the given major (0: any), newest name last.
fn candidates(directory: &Path, wanted: u32) -> Vec<PathBuf> {
    let Ok(entries) = std::fs::read_dir(directory) else { return Vec::new() };
    let mut found: Vec<PathBuf> = entries
        .filter_map(|e| e.ok().map(|e| e.path()))
        .filter(|p| file_name(p).starts_with("libcupti.so."))
        .filter(|p| wanted == 0 || major(file_name(p)).is_some_and(|m| m == wanted))
        .collect();
    found.sort();
    found
}

fn toolkit(driver_version: u32) -> Vec<PathBuf> {
    let major = driver_version / 1000;
    let mut places: Vec<PathBuf> = ["CUDA_HOME", "CUDA_PATH"]
        .iter()
        .filter_map(|v| environment::path(v))
        .map(|root| root.join("extras/CUPTI/lib64"))
        .collect();
    places.push(PathBuf::from("/usr/local/cuda/extras/CUPTI/lib64"));
    places.push(PathBuf::from("/usr/lib/x86_64-linux-gnu"));
    let mut found: Vec<PathBuf> = places.iter().flat_map(|p| candidates(p, major)).collect();
    // by the loader's own search path, the driver's major first
    found.push(PathBuf::from(format!("libcupti.so.{major}")));
    found.extend(["libcupti.so.13", "libcupti.so.12", "libcupti.so.11.8"].map(PathBuf::from));
    found
}

/// Why there is no CUPTI.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum NoCupti {
    /// Nothing found anywhere.
    NotFound,
    /// `GAPPROBE_CUPTI` names something that cannot be loaded.
    BadSetting(String),
}

/// Finds and opens the library. `driver_version`: as cuDriverGetVersion tells, e.g. 13000.
pub(crate) fn library(setting: Option<&Path>, driver_version: u32) -> Result<Library, NoCupti> {
    if let Some(l) = already_mapped() {
        return Ok(l);
    }
    if let Some(l) = beside_runtime().iter().find_map(|p| open(p, libc::RTLD_LOCAL)) {
        return Ok(l);
    }
    if let Some(path) = setting {
        return open(path, libc::RTLD_LOCAL)
            .ok_or_else(|| NoCupti::BadSetting(path.to_string_lossy().into_owned()));
    }
    toolkit(driver_version).iter().find_map(|p| open(p, libc::RTLD_LOCAL)).ok_or(NoCupti::NotFound)
}

/// What is wrong with a `GAPPROBE_CUPTI` that was not needed, for the process has a libcupti of its
/// own. Nothing is loaded to find out.
pub(crate) fn complaint(set: &Path, used: &Library) -> Option<String> {
    // a name alone is the loader's to find
    let is_name = !set.as_os_str().as_bytes().contains(&b'/');
    let why = match std::fs::File::open(set) {
        _ if is_name && file_name(set).starts_with("libcupti.so") => return None,
        Ok(file) if is_cupti(&file) => return None,
        Ok(_) => "is no libcupti",
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => "does not exist",
        Err(_) => "cannot be read",
    };
    Some(format!("GAPPROBE_CUPTI={} {why}, using {}", set.display(), used.path))
}

/// Does a file hold the name of a function that every libcupti exports and we need? Read in pieces,
/// up to the first that has it.
fn is_cupti(file: &std::fs::File) -> bool {
    const NAME: &[u8] = b"\0cuptiActivityRegisterCallbacks\0";
    const PIECE: usize = 1 << 16;
    let mut piece = Vec::with_capacity(PIECE + NAME.len());
    for _ in 0..MOST_PIECES {
        let kept = piece.len().min(NAME.len() - 1);
        piece.drain(..piece.len() - kept);
        match file.take(PIECE as u64).read_to_end(&mut piece) {
            Ok(1..) => {}
            _ => return false,
        }
        if piece.windows(NAME.len()).any(|w| w == NAME) {
            return true;
        }
    }
    false
}

/// Of 64 KB: 64 MB, several times the largest libcupti; a device has no end.
const MOST_PIECES: usize = 1024;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_major_is_read_off_the_file_name() {
        assert_eq!(major("libcudart.so.13"), Some(13));
        assert_eq!(major("libcudart.so.11.8.89"), Some(11));
        assert_eq!(major("libcudart.so"), None);
    }

    #[test]
    fn mapped_libraries_are_listed_and_a_missing_cupti_is_said() {
        assert!(is_mapped(&["libc.so.6"]));
        assert!(load_count() > 0);
        assert_eq!(
            library(Some(Path::new("/nonexistent/libcupti.so")), 0).map(|l| l.path),
            Err(NoCupti::BadSetting("/nonexistent/libcupti.so".into()))
        );
    }
}
