// SPDX-License-Identifier: Apache-2.0
//! One callback id with the names it goes by. The lists are in [`crate::cbid`]; which of them
//! matter is the caller's.

/// A CUDA call as CUPTI numbers it: one API version and stream variant of one function.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Call {
    /// The callback id, unique within its domain; the same in every release that has the call.
    pub cbid: u32,
    /// The function as a programmer knows it, without version or variant: `cudaMemcpyAsync`.
    pub call: &'static str,
    /// The constant's own name: `CUDA_MEMCPY_ASYNC_PTSZ_V7000`.
    pub variant: &'static str,
}

impl Call {
    /// The call with this id in the lists of a domain ([`crate::cbid::runtime::GROUPS`] or the
    /// driver's), and the name of its group. `None` for ids we have no name for. A linear search
    /// over about 150 entries: not for a hot path.
    #[must_use]
    pub fn find(
        groups: &'static [(&'static str, &'static [Call])],
        cbid: u32,
    ) -> Option<(&'static str, Call)> {
        groups.iter().find_map(|(group, calls)| {
            calls.iter().find(|call| call.cbid == cbid).map(|call| (*group, *call))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::Call;
    use crate::cbid::{driver, runtime};

    #[test]
    fn the_ids_of_the_survey_have_the_names_of_the_survey() {
        let expected = [
            (runtime::GROUPS, 211, "LAUNCH", "cudaLaunchKernel"),
            (runtime::GROUPS, 431, "LAUNCH", "cudaLaunchKernelExC"),
            (runtime::GROUPS, 505, "LAUNCH", "__cudaLaunchKernel"),
            (runtime::GROUPS, 311, "GRAPH_LAUNCH", "cudaGraphLaunch"),
            (runtime::GROUPS, 225, "MEMCPY_ASYNC", "cudaMemcpyAsync"),
            (runtime::GROUPS, 131, "SYNCHRONIZE", "cudaStreamSynchronize"),
            (runtime::GROUPS, 22, "ALLOCATE", "cudaFree"),
            (driver::GROUPS, 307, "LAUNCH", "cuLaunchKernel"),
            (driver::GROUPS, 421, "MEMCPY_ASYNC", "cuMemcpyHtoDAsync"),
            (driver::GROUPS, 800, "SYNCHRONIZE", "cuCtxSynchronize"),
            (driver::GROUPS, 659, "STREAM_WAIT", "cuStreamWaitValue32"),
            (driver::GROUPS, 245, "ALLOCATE", "cuMemFree"),
        ];
        for (groups, cbid, group, call) in expected {
            let (found_group, found) =
                Call::find(groups, cbid).unwrap_or_else(|| panic!("{cbid} is not listed"));
            assert_eq!((found_group, found.call), (group, call), "cbid {cbid}");
        }
        assert_eq!(Call::find(runtime::GROUPS, 1), None);
    }

    #[test]
    fn no_id_is_in_two_groups() {
        for groups in [runtime::GROUPS, driver::GROUPS] {
            let mut seen: Vec<u32> =
                groups.iter().flat_map(|(_, calls)| calls.iter().map(|c| c.cbid)).collect();
            let all = seen.len();
            seen.sort_unstable();
            seen.dedup();
            assert_eq!(seen.len(), all);
        }
    }
}
