// SPDX-License-Identifier: Apache-2.0
//! Runtimes of other vendors' accelerators: what their calls do, by name, and whose a run is.
//!
//! AMD: HIP mirrors CUDA name by name, so a HIP call is looked up as the CUDA call of that name;
//! what HIP alone has is listed. Held against real traces of torch.profiler on ROCm. Intel (Unified
//! Runtime, its predecessor PI, Level Zero) and Gaudi (SynapseAI): by names only, from their public
//! headers and Kineto's source; no real trace was at hand.

use trace::call::{self, Class};

use verdict::run::Run;

/// Who made the accelerator.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Vendor {
    /// CUDA.
    Nvidia,
    /// ROCm, HIP.
    Amd,
    /// oneAPI: torch's `xpu`.
    Intel,
    /// Gaudi: torch's `hpu`.
    Habana,
}

/// What HIP has and CUDA calls otherwise, or has not.
const HIP: &[(Class, &[&str])] = &[
    (
        Class::Launch,
        &[
            "hipModuleLaunchKernel",
            "hipModuleLaunchCooperativeKernel",
            "hipModuleLaunchCooperativeKernelMultiDevice",
            "hipExtModuleLaunchKernel",
            "hipHccModuleLaunchKernel",
            "hipExtLaunchKernel",
            "hipExtLaunchMultiKernelMultiDevice",
            "hipDrvLaunchKernelEx",
            "hipLaunchByPtr",
            "hipLaunchKernelGGL",
        ],
    ),
    (
        Class::Copy,
        &[
            "hipMemcpyWithStream",
            "hipMemcpyParam2D",
            "hipMemcpyParam2DAsync",
            "hipDrvMemcpy3D",
            "hipDrvMemcpy3DAsync",
        ],
    ),
    (Class::Alloc, &["hipHostMalloc", "hipExtMallocWithFlags", "hipMemAllocHost"]),
    (Class::Free, &["hipHostFree", "hipFreeArray"]),
];

/// Of Intel's Unified Runtime (`ur`), PI (`pi`) and Level Zero (`ze`). What only closes or submits
/// a list of commands is no launch: each command of it was appended by a call of its own.
const INTEL: &[(Class, &[&str])] = &[
    (
        Class::Launch,
        &[
            "urEnqueueKernelLaunch",
            "urEnqueueKernelLaunchCustomExp",
            "urEnqueueKernelLaunchWithArgsExp",
            "urEnqueueCooperativeKernelLaunchExp",
            "piEnqueueKernelLaunch",
            "piextEnqueueKernelLaunchCustom",
            "piextEnqueueCooperativeKernelLaunch",
            "zeCommandListAppendLaunchKernel",
            "zeCommandListAppendLaunchKernelWithArguments",
            "zeCommandListAppendLaunchKernelWithParameters",
            "zeCommandListAppendLaunchCooperativeKernel",
            "zeCommandListAppendLaunchKernelIndirect",
            "zeCommandListAppendLaunchMultipleKernelsIndirect",
        ],
    ),
    (Class::GraphLaunch, &["urEnqueueCommandBufferExp", "urCommandBufferEnqueueExp"]),
    (Class::GraphSetup, &["urCommandBufferFinalizeExp"]),
    (
        Class::Copy,
        &[
            "urEnqueueUSMMemcpy",
            "urEnqueueUSMMemcpy2D",
            "urEnqueueUSMPrefetch",
            "urEnqueueMemBufferRead",
            "urEnqueueMemBufferReadRect",
            "urEnqueueMemBufferWrite",
            "urEnqueueMemBufferWriteRect",
            "urEnqueueMemBufferCopy",
            "urEnqueueMemBufferCopyRect",
            "urEnqueueMemImageRead",
            "urEnqueueMemImageWrite",
            "urEnqueueMemImageCopy",
            "piextUSMEnqueueMemcpy",
            "piextUSMEnqueueMemcpy2D",
            "piextUSMEnqueuePrefetch",
            "piEnqueueMemBufferRead",
            "piEnqueueMemBufferWrite",
            "piEnqueueMemBufferCopy",
            "zeCommandListAppendMemoryCopy",
            "zeCommandListAppendMemoryCopyRegion",
            "zeCommandListAppendMemoryCopyFromContext",
            "zeCommandListAppendMemoryPrefetch",
            "zeCommandListAppendImageCopy",
        ],
    ),
    (
        Class::Memset,
        &[
            "urEnqueueUSMFill",
            "urEnqueueUSMFill2D",
            "urEnqueueMemBufferFill",
            "piextUSMEnqueueMemset",
            "piextUSMEnqueueFill",
            "piEnqueueMemBufferFill",
            "zeCommandListAppendMemoryFill",
        ],
    ),
    (
        Class::Sync,
        &[
            "urEventWait",
            "urQueueFinish",
            "piEventsWait",
            "piQueueFinish",
            "zeEventHostSynchronize",
            "zeFenceHostSynchronize",
            "zeCommandQueueSynchronize",
            "zeCommandListHostSynchronize",
        ],
    ),
    (
        Class::StreamWait,
        &[
            "urEnqueueEventsWait",
            "urEnqueueEventsWaitWithBarrier",
            "urEnqueueEventsWaitWithBarrierExt",
            "piEnqueueEventsWait",
            "piEnqueueEventsWaitWithBarrier",
            "zeCommandListAppendWaitOnEvents",
            "zeCommandListAppendBarrier",
        ],
    ),
    (
        Class::Alloc,
        &[
            "urUSMDeviceAlloc",
            "urUSMHostAlloc",
            "urUSMSharedAlloc",
            "urMemBufferCreate",
            "piextUSMDeviceAlloc",
            "piextUSMHostAlloc",
            "piextUSMSharedAlloc",
            "piMemBufferCreate",
            "zeMemAllocDevice",
            "zeMemAllocHost",
            "zeMemAllocShared",
        ],
    ),
    (Class::Free, &["urUSMFree", "urMemRelease", "piextUSMFree", "zeMemFree", "zeMemFreeExt"]),
];

/// Of Gaudi's SynapseAI.
const HABANA: &[(Class, &[&str])] = &[
    (Class::Launch, &["synLaunch", "synLaunchExt", "synLaunchWithExternalEvents"]),
    (Class::Copy, &["synMemCopyAsync", "synMemCopyAsyncMultiple"]),
    (Class::Memset, &["synMemsetD8Async", "synMemsetD16Async", "synMemsetD32Async"]),
    (Class::Sync, &["synStreamSynchronize", "synDeviceSynchronize", "synEventSynchronize"]),
    (Class::StreamWait, &["synStreamWaitEvent"]),
    (Class::Alloc, &["synDeviceMalloc", "synHostMalloc", "synHostMap"]),
    (Class::Free, &["synDeviceFree", "synHostFree", "synHostUnmap"]),
];

/// Whose runtime has a call of this name.
pub(super) fn of_call(name: &str) -> Option<Vendor> {
    let begins = |prefix: &str| {
        let next = name.strip_prefix(prefix).and_then(|rest| rest.bytes().next());
        next.is_some_and(|b| b.is_ascii_uppercase())
    };
    let of = |prefixes: &[&str]| prefixes.iter().any(|p| begins(p));
    match () {
        () if of(&["cuda", "cu"]) => Some(Vendor::Nvidia),
        () if of(&["hip"]) => Some(Vendor::Amd),
        () if of(&["ur", "pi", "piext", "ze"]) => Some(Vendor::Intel),
        () if of(&["syn"]) => Some(Vendor::Habana),
        () => None,
    }
}

/// What a call does, by its name without CUDA's versions; `None` where that is not known.
pub(super) fn class(name: &str) -> Option<Class> {
    let listed =
        |list: &[(Class, &[&str])]| list.iter().find(|(_, names)| names.contains(&name)).map(|l| l.0);
    match of_call(name)? {
        Vendor::Nvidia => None,
        Vendor::Amd => listed(HIP).or_else(|| as_cuda(name)),
        Vendor::Intel => listed(INTEL),
        Vendor::Habana => listed(HABANA),
    }
}

/// The class of the CUDA call that a HIP call is called after: `hipMemcpyAsync`, and the variant
/// for the thread's own default stream, `hipMemcpyAsync_spt`.
fn as_cuda(name: &str) -> Option<Class> {
    let rest = name.strip_prefix("hip")?;
    let rest = rest.strip_suffix("_spt").unwrap_or(rest);
    let is = |c: &call::Call| ["cuda", "cu"].iter().any(|p| c.name.strip_prefix(p) == Some(rest));
    call::CALLS.iter().find(|c| is(c)).map(|c| c.class)
}

/// Words in names of devices.
const DEVICES: &[(Vendor, &[&str])] = &[
    (Vendor::Amd, &["AMD", "Instinct", "Radeon", "gfx9", "gfx1"]),
    (Vendor::Intel, &["Intel"]),
    (Vendor::Habana, &["Gaudi", "HABANA"]),
];

/// Whose accelerator a run is of: by the calls, which say what runtime it was, then by the names of
/// the devices. NVIDIA's where nothing tells.
pub fn of(run: &Run) -> Vendor {
    let calls = run.threads.iter().flat_map(|t| &t.calls);
    let mut last = None;
    let mut names = calls.filter_map(|c| {
        // most calls are of the name of the one before
        let is_new = last.replace(c.packed) != Some(c.packed);
        is_new.then(|| run.known_call_name(c.packed)).flatten()
    });
    names.find_map(of_call).or_else(|| by_device(run)).unwrap_or(Vendor::Nvidia)
}

fn by_device(run: &Run) -> Option<Vendor> {
    let names = run.devices.iter().filter_map(|d| {
        let info = run.definitions.device(d.ordinal)?;
        run.definitions.string(info.name)
    });
    let whose =
        |name: &str| DEVICES.iter().find(|(_, words)| words.iter().any(|w| name.contains(w))).map(|d| d.0);
    names.into_iter().find_map(whose)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// HIP's names are CUDA's; what differs is listed, and what does no work has no class, as in
    /// CUDA.
    #[test]
    fn calls_of_hip_do_what_their_namesakes_do() {
        for (name, does) in [
            ("hipLaunchKernel", Some(Class::Launch)),
            ("hipLaunchKernel_spt", Some(Class::Launch)),
            ("hipLaunchCooperativeKernel", Some(Class::Launch)),
            ("hipModuleLaunchKernel", Some(Class::Launch)),
            ("hipExtModuleLaunchKernel", Some(Class::Launch)),
            ("hipGraphLaunch", Some(Class::GraphLaunch)),
            ("hipGraphInstantiate", Some(Class::GraphSetup)),
            ("hipMemcpyAsync", Some(Class::Copy)),
            ("hipMemcpyWithStream", Some(Class::Copy)),
            ("hipMemcpyHtoDAsync", Some(Class::Copy)),
            ("hipMemsetAsync", Some(Class::Memset)),
            ("hipMemsetD32Async", Some(Class::Memset)),
            ("hipStreamSynchronize", Some(Class::Sync)),
            ("hipDeviceSynchronize", Some(Class::Sync)),
            ("hipEventSynchronize", Some(Class::Sync)),
            ("hipStreamWaitEvent", Some(Class::StreamWait)),
            ("hipMalloc", Some(Class::Alloc)),
            ("hipHostMalloc", Some(Class::Alloc)),
            ("hipFree", Some(Class::Free)),
            ("hipMallocAsync", None),
            ("hipGetDevice", None),
            ("hipEventRecord", None),
            ("hipster", None),
        ] {
            assert_eq!(class(name), does, "{name}");
        }
    }

    #[test]
    fn calls_of_intel_and_gaudi_are_known_by_name() {
        for (name, does, whose) in [
            ("urEnqueueKernelLaunch", Some(Class::Launch), Some(Vendor::Intel)),
            ("zeCommandListAppendLaunchKernel", Some(Class::Launch), Some(Vendor::Intel)),
            ("zeCommandQueueExecuteCommandLists", None, Some(Vendor::Intel)),
            ("urEventWait", Some(Class::Sync), Some(Vendor::Intel)),
            ("urEnqueueUSMMemcpy", Some(Class::Copy), Some(Vendor::Intel)),
            ("piEnqueueKernelLaunch", Some(Class::Launch), Some(Vendor::Intel)),
            ("synLaunch", Some(Class::Launch), Some(Vendor::Habana)),
            ("synStreamSynchronize", Some(Class::Sync), Some(Vendor::Habana)),
            ("zebra", None, None),
            ("sync", None, None),
            ("cudaLaunchKernel", None, Some(Vendor::Nvidia)),
        ] {
            assert_eq!((class(name), of_call(name)), (does, whose), "{name}");
        }
    }

    /// A vendor's call is in one list, once.
    #[test]
    fn no_name_is_listed_twice() {
        let all: Vec<&str> =
            [HIP, INTEL, HABANA].into_iter().flatten().flat_map(|(_, n)| n.iter().copied()).collect();
        for (i, name) in all.iter().enumerate() {
            assert!(!all[i + 1..].contains(name), "{name} twice");
            assert!(of_call(name).is_some(), "{name}: whose?");
        }
    }
}
