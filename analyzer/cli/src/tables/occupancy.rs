// SPDX-License-Identifier: Apache-2.0
//! How much of a multiprocessor a kernel can fill: theoretical occupancy and waves, from its launch
//! configuration.
//!
//! ```text
//! blocks that fit   least of: the limit of blocks; warps / warps a block; registers; shared memory
//! registers         a warp takes 32 * registers a thread, rounded up to 256; each of the four parts of a
//!                   multiprocessor has a quarter of the registers and holds whole warps
//! shared memory     a block takes static + dynamic + what the system keeps (1 KiB from 8.0 on), rounded up to 128 bytes
//!                   (256 before 8.0); the multiprocessor is taken to give as much as it can
//! occupancy         blocks that fit * warps a block / the limit of warps
//! waves             blocks of the grid / (blocks that fit * multiprocessors), as Nsight Compute's "Waves Per SM"
//! ```
//! Not known where the device, the block or the registers are not. Clusters, and barriers, are left
//! out of account.

use foldhash::{HashMap, HashMapExt};
use trace::{DeviceInfo, KernelInfo, Kind};

use verdict::run::{Op, Run};

/// What a multiprocessor can hold.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Limits {
    /// Compute capability.
    pub capability: (u32, u32),
    /// Resident warps.
    pub warps: u32,
    /// Resident blocks.
    pub blocks: u32,
    /// Shared memory, bytes.
    pub shared: u32,
}

const fn limits(capability: (u32, u32), warps: u32, blocks: u32, shared_kib: u32) -> Limits {
    Limits { capability, warps, blocks, shared: shared_kib * 1024 }
}

/// By compute capability: CUDA Programming Guide 13, appendix "Compute Capabilities", tables
/// "Device and Streaming Multiprocessor Information" and "Memory Information" (7.5 on); CUDA C++
/// Programming Guide 12.6, table "Technical Specifications per Compute Capability" (before).
/// Registers are 65,536 in all of them. A minor number that is not here has the row before it of
/// the same major number.
pub const LIMITS: &[Limits] = &[
    limits((5, 0), 64, 32, 64),
    limits((5, 2), 64, 32, 96),
    limits((5, 3), 64, 32, 64),
    limits((6, 0), 64, 32, 64),
    limits((6, 1), 64, 32, 96),
    limits((6, 2), 64, 32, 64),
    limits((7, 0), 64, 32, 96),
    limits((7, 5), 32, 16, 64),
    limits((8, 0), 64, 32, 164),
    limits((8, 6), 48, 16, 100),
    limits((8, 7), 48, 16, 164),
    limits((8, 9), 48, 24, 100),
    limits((9, 0), 64, 32, 228),
    limits((10, 0), 64, 32, 228),
    limits((11, 0), 48, 24, 228),
    limits((12, 0), 48, 24, 100),
];

/// Registers of a multiprocessor.
pub const REGISTERS: u32 = 65_536;
/// Parts of a multiprocessor, each with a scheduler and its share of the registers.
const PARTS: u32 = 4;
/// Registers are handed to a warp in units of this many.
const REGISTER_UNIT: u32 = 256;
/// Threads of a warp.
const WARP: u32 = 32;
/// Kernels with more registers a thread than this are marked: with 128, sixteen warps fit a
/// multiprocessor; above, fewer.
pub const MANY_REGISTERS: u32 = 128;

/// The limits of a compute capability.
pub fn limits_of(major: u32, minor: u32) -> Option<&'static Limits> {
    LIMITS.iter().rev().find(|l| l.capability.0 == major && l.capability.1 <= minor)
}

/// How a kernel fits a device.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Fit {
    /// Blocks that a multiprocessor holds at once.
    pub blocks: u32,
    /// Share of the resident warps, 0 to 1.
    pub occupancy: f64,
}

/// See the module; `None` where something is not known, or no block fits (then what is known is
/// wrong).
pub fn fit(device: &DeviceInfo, kernel: &KernelInfo) -> Option<Fit> {
    let l = limits_of(device.compute_major, device.compute_minor)?;
    let threads = kernel.block.iter().try_fold(1u32, |n, &b| n.checked_mul(b))?;
    if threads == 0 || kernel.registers == 0 {
        return None;
    }
    let warps = threads.div_ceil(WARP);
    let per_warp = kernel.registers.checked_mul(WARP)?.checked_next_multiple_of(REGISTER_UNIT)?;
    let by_registers = (REGISTERS / PARTS / per_warp) * PARTS / warps;
    let (kept, unit) = if l.capability.0 >= 8 { (1024, 128) } else { (0, 256) };
    let shared = kernel.static_shared.checked_add(kernel.dynamic_shared)?.checked_add(kept)?;
    let by_shared = l.shared.checked_div(shared.checked_next_multiple_of(unit)?).unwrap_or(u32::MAX);
    let blocks = l.blocks.min(l.warps / warps).min(by_registers).min(by_shared);
    (blocks > 0).then(|| Fit { blocks, occupancy: f64::from(blocks * warps) / f64::from(l.warps) })
}

/// Waves of a grid of so many blocks on a device of so many multiprocessors.
pub fn waves(fit: &Fit, grid: u32, multiprocessors: u32) -> Option<f64> {
    let places = u64::from(fit.blocks) * u64::from(multiprocessors);
    (places > 0).then(|| f64::from(grid) / places as f64)
}

/// How the kernels of a run fit their devices, by device index and kernel id.
#[derive(Debug, Default)]
pub(super) struct Fits {
    known: HashMap<(usize, u32), Shape>,
}

#[derive(Clone, Copy, Debug)]
struct Shape {
    registers: u32,
    fit: Option<Fit>,
    multiprocessors: u32,
}

impl Fits {
    /// Looks at every kernel that an operation refers to, once a device.
    pub(super) fn new(run: &Run) -> Fits {
        let mut known = HashMap::new();
        for (d, device) in run.devices.iter().enumerate() {
            let mut last = None;
            let kernels = device.streams.iter().flat_map(|s| &s.ops).filter(|o| o.kind == Kind::Kernel);
            for op in kernels {
                if last == Some(op.a) {
                    continue;
                }
                last = Some(op.a);
                let Some(info) = run.definitions.kernel(op.a) else { continue };
                known.entry((d, op.a)).or_insert_with(|| Shape {
                    registers: info.registers,
                    fit: fit(&device.info, info),
                    multiprocessors: device.info.multiprocessors,
                });
            }
        }
        Fits { known }
    }
}

/// Waves, occupancy and registers of a row's kernels: means weighted by time, and the most
/// registers.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Filling {
    ns: f64,
    occupancy: f64,
    waves: f64,
    registers: u32,
}

impl Filling {
    /// One more kernel.
    pub(super) fn add(&mut self, fits: &Fits, device: usize, op: &Op) {
        let Some(shape) = fits.known.get(&(device, op.a)) else { return };
        self.registers = self.registers.max(shape.registers);
        let waves = shape.fit.as_ref().and_then(|f| waves(f, op.b, shape.multiprocessors));
        if let Some((fit, waves)) = shape.fit.zip(waves) {
            let ns = (op.end - op.start).max(1) as f64;
            self.ns += ns;
            self.occupancy += ns * fit.occupancy;
            self.waves += ns * waves;
        }
    }

    /// Waves; occupancy in percent; registers a thread; remarks.
    pub(super) fn cells(&self) -> [super::Cell; 4] {
        let mean = |sum: f64| (self.ns > 0.0).then(|| sum / self.ns);
        let registers = (self.registers > 0).then_some(self.registers);
        let marked = registers.filter(|&r| r > MANY_REGISTERS).map(|_| "regs>128");
        [mean(self.waves).into(), mean(self.occupancy * 100.0).into(), registers.into(), marked.into()]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fit_of(capability: (u32, u32), threads: u32, registers: u32, shared: u32) -> Option<(u32, f64)> {
        let device = DeviceInfo {
            multiprocessors: 132,
            compute_major: capability.0,
            compute_minor: capability.1,
            ..DeviceInfo::default()
        };
        let kernel =
            KernelInfo { block: [threads, 1, 1], registers, dynamic_shared: shared, ..KernelInfo::default() };
        fit(&device, &kernel).map(|f| (f.blocks, f.occupancy))
    }

    #[test]
    fn each_limit_binds_where_it_is_the_least() {
        let h100 = (9, 0);
        // warps: 64 / 8
        assert_eq!(fit_of(h100, 256, 32, 0), Some((8, 1.0)));
        // blocks: 32 of one warp
        assert_eq!(fit_of(h100, 32, 16, 0), Some((32, 0.5)));
        // registers: 168 * 32 = 5,376 a warp, three in a quarter's 16,384, 12 in all; a block has
        // 12
        assert_eq!(fit_of(h100, 384, 168, 0), Some((1, 12.0 / 64.0)));
        // ... and 33 registers are handed out as 40: 12 warps a quarter, 48 in all
        assert_eq!(fit_of(h100, 128, 33, 0), Some((12, 0.75)));
        assert_eq!(fit_of(h100, 128, 40, 0), Some((12, 0.75)));
        // shared memory: 48 KiB and 1 KiB kept: 228 / 49
        assert_eq!(fit_of(h100, 128, 32, 48 * 1024), Some((4, 16.0 / 64.0)));
        // a thread more than a warp takes two
        assert_eq!(fit_of(h100, 33, 16, 0), Some((32, 1.0)));
        // Turing: 32 warps, 16 blocks, nothing kept
        assert_eq!(fit_of((7, 5), 256, 32, 0), Some((4, 1.0)));
        assert_eq!(fit_of((7, 5), 64, 32, 32 * 1024), Some((2, 4.0 / 32.0)));
        // consumer chips: 48 warps
        assert_eq!(fit_of((8, 9), 1024, 32, 0), Some((1, 32.0 / 48.0)));
    }

    #[test]
    fn what_is_not_known_is_not_guessed() {
        assert_eq!(fit_of((0, 0), 256, 32, 0), None);
        assert_eq!(fit_of((99, 0), 256, 32, 0), None);
        assert_eq!(fit_of((9, 0), 0, 32, 0), None);
        assert_eq!(fit_of((9, 0), 256, 0, 0), None);
        assert_eq!(fit_of((9, 0), 256, 32, 300 * 1024), None, "more than there is");
        assert_eq!(fit_of((9, 0), u32::MAX, u32::MAX, u32::MAX), None);
        assert_eq!(limits_of(7, 2).map(|l| l.capability), Some((7, 0)));
        assert_eq!(limits_of(10, 3).map(|l| l.capability), Some((10, 0)));
    }

    #[test]
    fn waves_are_rounds_of_the_whole_device() {
        let fit = Fit { blocks: 2, occupancy: 0.5 };
        assert_eq!(waves(&fit, 132, 132), Some(0.5));
        assert_eq!(waves(&fit, 528, 132), Some(2.0));
        assert_eq!(waves(&fit, 528, 0), None);
    }
}
