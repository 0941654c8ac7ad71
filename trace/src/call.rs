// SPDX-License-Identifier: Apache-2.0
//! The CUDA API calls a recording can hold: domain and call id (CUPTI's `cbid`), name, and what
//! class they are of.
//!
//! Call ids are the same in every CUPTI from 11.8 to 13.5 (a test in `cupti-sys` reads the
//! headers); a call an older release does not have is simply never seen. Left out on purpose:
//! queries, event records and stream-ordered allocation (`cudaMallocAsync`), which neither block
//! the host nor put work on the device worth a callback each.

/// Domain number of driver calls (`CUPTI_CB_DOMAIN_DRIVER_API`).
pub const DRIVER: u8 = 1;
/// Domain number of runtime calls (`CUPTI_CB_DOMAIN_RUNTIME_API`).
pub const RUNTIME: u8 = 2;

/// What a call does to host and device.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
#[repr(u8)]
pub enum Class {
    /// Puts one kernel into a stream.
    Launch = 1,
    /// Launches a CUDA graph.
    GraphLaunch = 2,
    /// Copies; may block the host (blocking form, or pageable memory).
    Copy = 3,
    /// Fills memory.
    Memset = 4,
    /// Blocks the host until the device has reached a point.
    Sync = 5,
    /// Allocates device or pinned memory; may synchronize.
    Alloc = 6,
    /// Frees device or pinned memory; may synchronize.
    Free = 7,
    /// Makes a stream wait for an event.
    StreamWait = 8,
    /// Instantiates or uploads a CUDA graph.
    GraphSetup = 9,
    /// cudaProfilerStart / Stop.
    Profiler = 10,
}

impl Class {
    /// The class with this number.
    pub fn from_u8(n: u8) -> Option<Class> {
        Some(match n {
            1 => Class::Launch,
            2 => Class::GraphLaunch,
            3 => Class::Copy,
            4 => Class::Memset,
            5 => Class::Sync,
            6 => Class::Alloc,
            7 => Class::Free,
            8 => Class::StreamWait,
            9 => Class::GraphSetup,
            10 => Class::Profiler,
            _ => return None,
        })
    }
}

/// One row of the table.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Call {
    /// [`DRIVER`] or [`RUNTIME`].
    pub domain: u8,
    /// CUPTI's call id in that domain.
    pub id: u32,
    /// The function's name as users know it, without version suffix.
    pub name: &'static str,
    /// What it does.
    pub class: Class,
}

/// Field `a` of a `Kind::Call`.
pub const fn pack(domain: u8, id: u32) -> u32 {
    (domain as u32) << 24 | (id & 0xff_ffff)
}

/// The row of a packed call (field `a` of a `Kind::Call`), if known.
pub fn find(packed: u32) -> Option<&'static Call> {
    let (domain, id) = ((packed >> 24) as u8, packed & 0xff_ffff);
    CALLS.iter().find(|c| c.domain == domain && c.id == id)
}

/// Call ids are below this in every release so far.
const TABLE: usize = 1024;

/// Class of each call id of a domain, 0 = not recorded: for paths that look up many.
pub const fn classes(domain: u8) -> [u8; TABLE] {
    let mut table = [0; TABLE];
    let mut i = 0;
    while i < CALLS.len() {
        if CALLS[i].domain == domain && (CALLS[i].id as usize) < TABLE {
            table[CALLS[i].id as usize] = CALLS[i].class as u8;
        }
        i += 1;
    }
    table
}

static CLASSES: [[u8; TABLE]; 2] = [classes(DRIVER), classes(RUNTIME)];

/// The class of a packed call without searching the table; `None` for calls that are not recorded.
pub fn find_fast(packed: u32) -> Option<Class> {
    let domain = ((packed >> 24) as usize).checked_sub(1)?;
    Class::from_u8(*CLASSES.get(domain)?.get((packed & 0xff_ffff) as usize)?)
}

macro_rules! calls {
    ($($domain:ident $id:literal $name:literal $class:ident;)*) => {
        /// Every call gapprobe records.
        pub const CALLS: &[Call] = &[$(Call { domain: $domain, id: $id, name: $name, class: Class::$class },)*];
    };
}

calls! {
    RUNTIME 13 "cudaLaunch" Launch;
    RUNTIME 213 "cudaLaunch" Launch;
    RUNTIME 211 "cudaLaunchKernel" Launch;
    RUNTIME 214 "cudaLaunchKernel" Launch;
    RUNTIME 430 "cudaLaunchKernelExC" Launch;
    RUNTIME 431 "cudaLaunchKernelExC" Launch;
    RUNTIME 505 "__cudaLaunchKernel" Launch;
    RUNTIME 506 "__cudaLaunchKernel" Launch;
    RUNTIME 269 "cudaLaunchCooperativeKernel" Launch;
    RUNTIME 270 "cudaLaunchCooperativeKernel" Launch;
    RUNTIME 272 "cudaLaunchCooperativeKernelMultiDevice" Launch;
    RUNTIME 311 "cudaGraphLaunch" GraphLaunch;
    RUNTIME 312 "cudaGraphLaunch" GraphLaunch;
    RUNTIME 310 "cudaGraphInstantiate" GraphSetup;
    RUNTIME 443 "cudaGraphInstantiate" GraphSetup;
    RUNTIME 418 "cudaGraphInstantiateWithFlags" GraphSetup;
    RUNTIME 436 "cudaGraphInstantiateWithParams" GraphSetup;
    RUNTIME 437 "cudaGraphInstantiateWithParams" GraphSetup;
    RUNTIME 348 "cudaGraphUpload" GraphSetup;
    RUNTIME 349 "cudaGraphUpload" GraphSetup;
    RUNTIME 31 "cudaMemcpy" Copy;
    RUNTIME 215 "cudaMemcpy" Copy;
    RUNTIME 32 "cudaMemcpy2D" Copy;
    RUNTIME 216 "cudaMemcpy2D" Copy;
    RUNTIME 144 "cudaMemcpy3D" Copy;
    RUNTIME 245 "cudaMemcpy3D" Copy;
    RUNTIME 160 "cudaMemcpyPeer" Copy;
    RUNTIME 162 "cudaMemcpy3DPeer" Copy;
    RUNTIME 249 "cudaMemcpy3DPeer" Copy;
    RUNTIME 39 "cudaMemcpyToSymbol" Copy;
    RUNTIME 223 "cudaMemcpyToSymbol" Copy;
    RUNTIME 40 "cudaMemcpyFromSymbol" Copy;
    RUNTIME 224 "cudaMemcpyFromSymbol" Copy;
    RUNTIME 33 "cudaMemcpyToArray" Copy;
    RUNTIME 217 "cudaMemcpyToArray" Copy;
    RUNTIME 35 "cudaMemcpyFromArray" Copy;
    RUNTIME 219 "cudaMemcpyFromArray" Copy;
    RUNTIME 34 "cudaMemcpy2DToArray" Copy;
    RUNTIME 218 "cudaMemcpy2DToArray" Copy;
    RUNTIME 36 "cudaMemcpy2DFromArray" Copy;
    RUNTIME 220 "cudaMemcpy2DFromArray" Copy;
    RUNTIME 37 "cudaMemcpyArrayToArray" Copy;
    RUNTIME 221 "cudaMemcpyArrayToArray" Copy;
    RUNTIME 38 "cudaMemcpy2DArrayToArray" Copy;
    RUNTIME 222 "cudaMemcpy2DArrayToArray" Copy;
    RUNTIME 41 "cudaMemcpyAsync" Copy;
    RUNTIME 225 "cudaMemcpyAsync" Copy;
    RUNTIME 44 "cudaMemcpy2DAsync" Copy;
    RUNTIME 228 "cudaMemcpy2DAsync" Copy;
    RUNTIME 145 "cudaMemcpy3DAsync" Copy;
    RUNTIME 246 "cudaMemcpy3DAsync" Copy;
    RUNTIME 161 "cudaMemcpyPeerAsync" Copy;
    RUNTIME 163 "cudaMemcpy3DPeerAsync" Copy;
    RUNTIME 250 "cudaMemcpy3DPeerAsync" Copy;
    RUNTIME 47 "cudaMemcpyToSymbolAsync" Copy;
    RUNTIME 231 "cudaMemcpyToSymbolAsync" Copy;
    RUNTIME 48 "cudaMemcpyFromSymbolAsync" Copy;
    RUNTIME 232 "cudaMemcpyFromSymbolAsync" Copy;
    RUNTIME 42 "cudaMemcpyToArrayAsync" Copy;
    RUNTIME 226 "cudaMemcpyToArrayAsync" Copy;
    RUNTIME 43 "cudaMemcpyFromArrayAsync" Copy;
    RUNTIME 227 "cudaMemcpyFromArrayAsync" Copy;
    RUNTIME 45 "cudaMemcpy2DToArrayAsync" Copy;
    RUNTIME 229 "cudaMemcpy2DToArrayAsync" Copy;
    RUNTIME 46 "cudaMemcpy2DFromArrayAsync" Copy;
    RUNTIME 230 "cudaMemcpy2DFromArrayAsync" Copy;
    RUNTIME 482 "cudaMemcpyBatchAsync" Copy;
    RUNTIME 483 "cudaMemcpyBatchAsync" Copy;
    RUNTIME 509 "cudaMemcpyBatchAsync" Copy;
    RUNTIME 510 "cudaMemcpyBatchAsync" Copy;
    RUNTIME 484 "cudaMemcpy3DBatchAsync" Copy;
    RUNTIME 485 "cudaMemcpy3DBatchAsync" Copy;
    RUNTIME 511 "cudaMemcpy3DBatchAsync" Copy;
    RUNTIME 512 "cudaMemcpy3DBatchAsync" Copy;
    RUNTIME 554 "cudaMemcpyWithAttributesAsync" Copy;
    RUNTIME 555 "cudaMemcpyWithAttributesAsync" Copy;
    RUNTIME 556 "cudaMemcpy3DWithAttributesAsync" Copy;
    RUNTIME 557 "cudaMemcpy3DWithAttributesAsync" Copy;
    RUNTIME 252 "cudaMemPrefetchAsync" Copy;
    RUNTIME 253 "cudaMemPrefetchAsync" Copy;
    RUNTIME 449 "cudaMemPrefetchAsync" Copy;
    RUNTIME 450 "cudaMemPrefetchAsync" Copy;
    RUNTIME 487 "cudaMemPrefetchBatchAsync" Copy;
    RUNTIME 488 "cudaMemPrefetchBatchAsync" Copy;
    RUNTIME 49 "cudaMemset" Memset;
    RUNTIME 233 "cudaMemset" Memset;
    RUNTIME 50 "cudaMemset2D" Memset;
    RUNTIME 234 "cudaMemset2D" Memset;
    RUNTIME 142 "cudaMemset3D" Memset;
    RUNTIME 243 "cudaMemset3D" Memset;
    RUNTIME 51 "cudaMemsetAsync" Memset;
    RUNTIME 235 "cudaMemsetAsync" Memset;
    RUNTIME 52 "cudaMemset2DAsync" Memset;
    RUNTIME 236 "cudaMemset2DAsync" Memset;
    RUNTIME 143 "cudaMemset3DAsync" Memset;
    RUNTIME 244 "cudaMemset3DAsync" Memset;
    RUNTIME 131 "cudaStreamSynchronize" Sync;
    RUNTIME 239 "cudaStreamSynchronize" Sync;
    RUNTIME 165 "cudaDeviceSynchronize" Sync;
    RUNTIME 137 "cudaEventSynchronize" Sync;
    RUNTIME 126 "cudaThreadSynchronize" Sync;
    RUNTIME 534 "cudaExecutionCtxSynchronize" Sync;
    RUNTIME 147 "cudaStreamWaitEvent" StreamWait;
    RUNTIME 247 "cudaStreamWaitEvent" StreamWait;
    RUNTIME 20 "cudaMalloc" Alloc;
    RUNTIME 21 "cudaMallocPitch" Alloc;
    RUNTIME 140 "cudaMalloc3D" Alloc;
    RUNTIME 206 "cudaMallocManaged" Alloc;
    RUNTIME 22 "cudaFree" Free;
    RUNTIME 25 "cudaMallocHost" Alloc;
    RUNTIME 27 "cudaHostAlloc" Alloc;
    RUNTIME 26 "cudaFreeHost" Free;
    RUNTIME 152 "cudaHostRegister" Alloc;
    RUNTIME 153 "cudaHostUnregister" Free;
    RUNTIME 171 "cudaProfilerStart" Profiler;
    RUNTIME 172 "cudaProfilerStop" Profiler;
    DRIVER 307 "cuLaunchKernel" Launch;
    DRIVER 442 "cuLaunchKernel" Launch;
    DRIVER 652 "cuLaunchKernelEx" Launch;
    DRIVER 653 "cuLaunchKernelEx" Launch;
    DRIVER 477 "cuLaunchCooperativeKernel" Launch;
    DRIVER 478 "cuLaunchCooperativeKernel" Launch;
    DRIVER 480 "cuLaunchCooperativeKernelMultiDevice" Launch;
    DRIVER 115 "cuLaunch" Launch;
    DRIVER 116 "cuLaunchGrid" Launch;
    DRIVER 117 "cuLaunchGridAsync" Launch;
    DRIVER 514 "cuGraphLaunch" GraphLaunch;
    DRIVER 515 "cuGraphLaunch" GraphLaunch;
    DRIVER 513 "cuGraphInstantiate" GraphSetup;
    DRIVER 578 "cuGraphInstantiate" GraphSetup;
    DRIVER 643 "cuGraphInstantiateWithFlags" GraphSetup;
    DRIVER 656 "cuGraphInstantiateWithParams" GraphSetup;
    DRIVER 657 "cuGraphInstantiateWithParams" GraphSetup;
    DRIVER 580 "cuGraphUpload" GraphSetup;
    DRIVER 581 "cuGraphUpload" GraphSetup;
    DRIVER 305 "cuMemcpy" Copy;
    DRIVER 408 "cuMemcpy" Copy;
    DRIVER 43 "cuMemcpyHtoD" Copy;
    DRIVER 276 "cuMemcpyHtoD" Copy;
    DRIVER 397 "cuMemcpyHtoD" Copy;
    DRIVER 45 "cuMemcpyDtoH" Copy;
    DRIVER 278 "cuMemcpyDtoH" Copy;
    DRIVER 398 "cuMemcpyDtoH" Copy;
    DRIVER 47 "cuMemcpyDtoD" Copy;
    DRIVER 280 "cuMemcpyDtoD" Copy;
    DRIVER 399 "cuMemcpyDtoD" Copy;
    DRIVER 318 "cuMemcpyPeer" Copy;
    DRIVER 409 "cuMemcpyPeer" Copy;
    DRIVER 56 "cuMemcpy2D" Copy;
    DRIVER 287 "cuMemcpy2D" Copy;
    DRIVER 405 "cuMemcpy2D" Copy;
    DRIVER 57 "cuMemcpy2DUnaligned" Copy;
    DRIVER 288 "cuMemcpy2DUnaligned" Copy;
    DRIVER 406 "cuMemcpy2DUnaligned" Copy;
    DRIVER 58 "cuMemcpy3D" Copy;
    DRIVER 290 "cuMemcpy3D" Copy;
    DRIVER 407 "cuMemcpy3D" Copy;
    DRIVER 320 "cuMemcpy3DPeer" Copy;
    DRIVER 410 "cuMemcpy3DPeer" Copy;
    DRIVER 53 "cuMemcpyHtoA" Copy;
    DRIVER 292 "cuMemcpyHtoA" Copy;
    DRIVER 402 "cuMemcpyHtoA" Copy;
    DRIVER 54 "cuMemcpyAtoH" Copy;
    DRIVER 282 "cuMemcpyAtoH" Copy;
    DRIVER 403 "cuMemcpyAtoH" Copy;
    DRIVER 49 "cuMemcpyDtoA" Copy;
    DRIVER 285 "cuMemcpyDtoA" Copy;
    DRIVER 400 "cuMemcpyDtoA" Copy;
    DRIVER 51 "cuMemcpyAtoD" Copy;
    DRIVER 284 "cuMemcpyAtoD" Copy;
    DRIVER 401 "cuMemcpyAtoD" Copy;
    DRIVER 55 "cuMemcpyAtoA" Copy;
    DRIVER 286 "cuMemcpyAtoA" Copy;
    DRIVER 404 "cuMemcpyAtoA" Copy;
    DRIVER 306 "cuMemcpyAsync" Copy;
    DRIVER 418 "cuMemcpyAsync" Copy;
    DRIVER 60 "cuMemcpyHtoDAsync" Copy;
    DRIVER 277 "cuMemcpyHtoDAsync" Copy;
    DRIVER 421 "cuMemcpyHtoDAsync" Copy;
    DRIVER 62 "cuMemcpyDtoHAsync" Copy;
    DRIVER 279 "cuMemcpyDtoHAsync" Copy;
    DRIVER 422 "cuMemcpyDtoHAsync" Copy;
    DRIVER 64 "cuMemcpyDtoDAsync" Copy;
    DRIVER 281 "cuMemcpyDtoDAsync" Copy;
    DRIVER 423 "cuMemcpyDtoDAsync" Copy;
    DRIVER 319 "cuMemcpyPeerAsync" Copy;
    DRIVER 426 "cuMemcpyPeerAsync" Copy;
    DRIVER 68 "cuMemcpy2DAsync" Copy;
    DRIVER 289 "cuMemcpy2DAsync" Copy;
    DRIVER 424 "cuMemcpy2DAsync" Copy;
    DRIVER 69 "cuMemcpy3DAsync" Copy;
    DRIVER 291 "cuMemcpy3DAsync" Copy;
    DRIVER 425 "cuMemcpy3DAsync" Copy;
    DRIVER 321 "cuMemcpy3DPeerAsync" Copy;
    DRIVER 427 "cuMemcpy3DPeerAsync" Copy;
    DRIVER 66 "cuMemcpyHtoAAsync" Copy;
    DRIVER 293 "cuMemcpyHtoAAsync" Copy;
    DRIVER 419 "cuMemcpyHtoAAsync" Copy;
    DRIVER 67 "cuMemcpyAtoHAsync" Copy;
    DRIVER 283 "cuMemcpyAtoHAsync" Copy;
    DRIVER 420 "cuMemcpyAtoHAsync" Copy;
    DRIVER 776 "cuMemcpyBatchAsync" Copy;
    DRIVER 777 "cuMemcpyBatchAsync" Copy;
    DRIVER 796 "cuMemcpyBatchAsync" Copy;
    DRIVER 797 "cuMemcpyBatchAsync" Copy;
    DRIVER 778 "cuMemcpy3DBatchAsync" Copy;
    DRIVER 779 "cuMemcpy3DBatchAsync" Copy;
    DRIVER 798 "cuMemcpy3DBatchAsync" Copy;
    DRIVER 799 "cuMemcpy3DBatchAsync" Copy;
    DRIVER 837 "cuMemcpyWithAttributesAsync" Copy;
    DRIVER 838 "cuMemcpyWithAttributesAsync" Copy;
    DRIVER 839 "cuMemcpy3DWithAttributesAsync" Copy;
    DRIVER 840 "cuMemcpy3DWithAttributesAsync" Copy;
    DRIVER 467 "cuMemPrefetchAsync" Copy;
    DRIVER 468 "cuMemPrefetchAsync" Copy;
    DRIVER 716 "cuMemPrefetchAsync" Copy;
    DRIVER 717 "cuMemPrefetchAsync" Copy;
    DRIVER 784 "cuMemPrefetchBatchAsync" Copy;
    DRIVER 785 "cuMemPrefetchBatchAsync" Copy;
    DRIVER 71 "cuMemsetD8" Memset;
    DRIVER 249 "cuMemsetD8" Memset;
    DRIVER 411 "cuMemsetD8" Memset;
    DRIVER 73 "cuMemsetD16" Memset;
    DRIVER 250 "cuMemsetD16" Memset;
    DRIVER 412 "cuMemsetD16" Memset;
    DRIVER 75 "cuMemsetD32" Memset;
    DRIVER 251 "cuMemsetD32" Memset;
    DRIVER 413 "cuMemsetD32" Memset;
    DRIVER 77 "cuMemsetD2D8" Memset;
    DRIVER 252 "cuMemsetD2D8" Memset;
    DRIVER 414 "cuMemsetD2D8" Memset;
    DRIVER 79 "cuMemsetD2D16" Memset;
    DRIVER 253 "cuMemsetD2D16" Memset;
    DRIVER 415 "cuMemsetD2D16" Memset;
    DRIVER 81 "cuMemsetD2D32" Memset;
    DRIVER 254 "cuMemsetD2D32" Memset;
    DRIVER 416 "cuMemsetD2D32" Memset;
    DRIVER 216 "cuMemsetD8Async" Memset;
    DRIVER 428 "cuMemsetD8Async" Memset;
    DRIVER 218 "cuMemsetD16Async" Memset;
    DRIVER 429 "cuMemsetD16Async" Memset;
    DRIVER 220 "cuMemsetD32Async" Memset;
    DRIVER 430 "cuMemsetD32Async" Memset;
    DRIVER 222 "cuMemsetD2D8Async" Memset;
    DRIVER 431 "cuMemsetD2D8Async" Memset;
    DRIVER 224 "cuMemsetD2D16Async" Memset;
    DRIVER 432 "cuMemsetD2D16Async" Memset;
    DRIVER 226 "cuMemsetD2D32Async" Memset;
    DRIVER 433 "cuMemsetD2D32Async" Memset;
    DRIVER 126 "cuStreamSynchronize" Sync;
    DRIVER 440 "cuStreamSynchronize" Sync;
    DRIVER 17 "cuCtxSynchronize" Sync;
    DRIVER 800 "cuCtxSynchronize" Sync;
    DRIVER 121 "cuEventSynchronize" Sync;
    DRIVER 295 "cuStreamWaitEvent" StreamWait;
    DRIVER 436 "cuStreamWaitEvent" StreamWait;
    DRIVER 458 "cuStreamWaitValue32" StreamWait;
    DRIVER 459 "cuStreamWaitValue32" StreamWait;
    DRIVER 659 "cuStreamWaitValue32" StreamWait;
    DRIVER 660 "cuStreamWaitValue32" StreamWait;
    DRIVER 473 "cuStreamWaitValue64" StreamWait;
    DRIVER 474 "cuStreamWaitValue64" StreamWait;
    DRIVER 661 "cuStreamWaitValue64" StreamWait;
    DRIVER 662 "cuStreamWaitValue64" StreamWait;
    DRIVER 29 "cuMemAlloc" Alloc;
    DRIVER 243 "cuMemAlloc" Alloc;
    DRIVER 31 "cuMemAllocPitch" Alloc;
    DRIVER 244 "cuMemAllocPitch" Alloc;
    DRIVER 371 "cuMemAllocManaged" Alloc;
    DRIVER 33 "cuMemFree" Free;
    DRIVER 245 "cuMemFree" Free;
    DRIVER 37 "cuMemAllocHost" Alloc;
    DRIVER 294 "cuMemAllocHost" Alloc;
    DRIVER 39 "cuMemHostAlloc" Alloc;
    DRIVER 38 "cuMemFreeHost" Free;
    DRIVER 301 "cuMemHostRegister" Alloc;
    DRIVER 379 "cuMemHostRegister" Alloc;
    DRIVER 302 "cuMemHostUnregister" Free;
    DRIVER 549 "cuMemCreate" Alloc;
    DRIVER 550 "cuMemRelease" Free;
    DRIVER 551 "cuMemMap" Alloc;
    DRIVER 552 "cuMemUnmap" Free;
    DRIVER 308 "cuProfilerStart" Profiler;
    DRIVER 309 "cuProfilerStop" Profiler;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_row_is_found_once_by_its_packed_form() {
        for (i, c) in CALLS.iter().enumerate() {
            assert_eq!(find(pack(c.domain, c.id)), Some(c));
            assert_eq!(find_fast(pack(c.domain, c.id)), Some(c.class));
            assert!(CALLS[i + 1..].iter().all(|d| (d.domain, d.id) != (c.domain, c.id)), "{} twice", c.name);
        }
        assert_eq!(find(pack(RUNTIME, 999)), None);
    }
}
