// SPDX-License-Identifier: Apache-2.0
//! Every SIM_* variable, read once at first use. README.md is the reference; keep the two in step.

use std::sync::OnceLock;

/// One entry of SIM_FAULT: `what[:which]=value`.
struct Fault {
    what: String,
    which: String,
    value: String,
}

/// The parsed environment.
pub(crate) struct Settings {
    /// Number of GPUs.
    pub(crate) devices: u32,
    /// Host time of a kernel launch, copy or memset call, ns, spent busy.
    pub(crate) launch_ns: u64,
    /// Host time of a graph launch, ns.
    pub(crate) graph_launch_ns: u64,
    /// More of it for each node, ns.
    pub(crate) graph_node_ns: u64,
    /// From the end of the launch's host time to its start on an empty stream, ns.
    pub(crate) latency_ns: u64,
    /// Between two operations of a stream that were both queued, ns.
    pub(crate) gap_ns: u64,
    /// Between two nodes of a graph, ns.
    pub(crate) node_gap_ns: u64,
    /// Host time of cudaMalloc and cudaFree, ns.
    pub(crate) alloc_ns: u64,
    /// Host time that CUPTI adds to a launch while kernels are recorded, ns, spent busy.
    pub(crate) cupti_ns: u64,
    /// Bytes per microsecond: pinned, pageable, on the device.
    pub(crate) pinned_rate: u64,
    pub(crate) pageable_rate: u64,
    pub(crate) device_rate: u64,
    /// Bytes of a copy or memset that are really moved, at most.
    pub(crate) moved: usize,
    /// Operations a stream takes before the launching call blocks.
    pub(crate) queue: usize,
    /// Where the truth is written.
    pub(crate) truth: Option<String>,
    /// A GPRAWREC file for simReplay.
    pub(crate) replay: Option<String>,
    /// What `__cudaLaunchKernel` shows as: 211 (seen under PyTorch 2.11) or 505.
    pub(crate) stub_cbid: u32,
    /// The first correlation id.
    pub(crate) correlation: u32,
    /// Kernels' records do not bear being switched beside a launch.
    pub(crate) switching: bool,
    /// What a call's callbacks share holds at first what another one's held.
    pub(crate) stale: bool,
    faults: Vec<Fault>,
}

fn number(name: &str, default: u64) -> u64 {
    std::env::var(name).ok().and_then(|v| v.trim().parse().ok()).unwrap_or(default)
}

fn parse_faults(list: &str) -> Vec<Fault> {
    let words = list.split(',').map(str::trim).filter(|w| !w.is_empty());
    words
        .map(|word| {
            // `every=N` belongs to the value: zero_ts:every=100 and drop:every=1000 read as
            // (zero_ts, every, 100).
            let (left, value) = word.split_once('=').unwrap_or((word, ""));
            let (what, which) = left.split_once(':').unwrap_or((left, ""));
            Fault { what: what.into(), which: which.into(), value: value.into() }
        })
        .collect()
}

/// The settings of this process.
pub(crate) fn settings() -> &'static Settings {
    static ONCE: OnceLock<Settings> = OnceLock::new();
    ONCE.get_or_init(|| Settings {
        devices: number("SIM_DEVICES", 1) as u32,
        launch_ns: number("SIM_LAUNCH_NS", 3_000),
        graph_launch_ns: number("SIM_GRAPH_LAUNCH_NS", 3 * number("SIM_LAUNCH_NS", 3_000)),
        graph_node_ns: number("SIM_GRAPH_NODE_NS", 0),
        latency_ns: number("SIM_LATENCY_NS", 6_000),
        gap_ns: number("SIM_GAP_NS", 1_000),
        node_gap_ns: number("SIM_NODE_GAP_NS", 400),
        alloc_ns: number("SIM_ALLOC_NS", 10_000),
        cupti_ns: number("SIM_CUPTI_NS", 0),
        pinned_rate: number("SIM_PINNED_MBPS", 50_000).max(1),
        pageable_rate: number("SIM_PAGEABLE_MBPS", 10_000).max(1),
        device_rate: number("SIM_DEVICE_MBPS", 2_000_000).max(1),
        moved: number("SIM_MOVED", 1 << 20) as usize,
        queue: number("SIM_QUEUE", 1_024).max(1) as usize,
        truth: std::env::var("SIM_TRUTH").ok().filter(|p| !p.is_empty()),
        replay: std::env::var("SIM_REPLAY").ok().filter(|p| !p.is_empty()),
        stub_cbid: number("SIM_STUB_CBID", 211) as u32,
        correlation: number("SIM_CORRELATION", 1) as u32,
        switching: number("SIM_SWITCHING", 1) != 0,
        stale: number("SIM_STALE", 0) != 0,
        faults: parse_faults(&std::env::var("SIM_FAULT").unwrap_or_default()),
    })
}

impl Settings {
    fn fault(&self, what: &str, which: &str) -> Option<&str> {
        self.faults.iter().find(|f| f.what == what && f.which == which).map(|f| f.value.as_str())
    }

    /// The value of fault `what`, `name=null` say.
    pub(crate) fn fault_is(&self, what: &str, value: &str) -> bool {
        self.faults.iter().any(|f| f.what == what && (f.value == value || f.which == value))
    }

    /// The error code a fault asks for: `subscribe=39`, `enable:10=error2`, `cuinit=error100`.
    pub(crate) fn fault_code(&self, what: &str, which: &str) -> Option<i32> {
        self.fault(what, which)?.trim_start_matches("error").parse().ok()
    }

    /// N of `what:every=N`.
    pub(crate) fn fault_every(&self, what: &str) -> Option<u64> {
        self.fault(what, "every")?.parse().ok().filter(|n| *n > 0)
    }

    /// Milliseconds of `what=slow:Nms`.
    pub(crate) fn fault_slow_ms(&self, what: &str) -> Option<u64> {
        self.fault(what, "")?.strip_prefix("slow:")?.trim_end_matches("ms").parse().ok()
    }
}

#[cfg(test)]
mod tests {
    use super::parse_faults;

    #[test]
    fn faults_read_as_documented() {
        let list = parse_faults("enable:10=error2, flush=slow:500ms,drop:every=1000,backward_ts");
        let seen: Vec<_> =
            list.iter().map(|f| (f.what.as_str(), f.which.as_str(), f.value.as_str())).collect();
        let wanted = [
            ("enable", "10", "error2"),
            ("flush", "", "slow:500ms"),
            ("drop", "every", "1000"),
            ("backward_ts", "", ""),
        ];
        assert_eq!(seen, wanted);
    }
}
