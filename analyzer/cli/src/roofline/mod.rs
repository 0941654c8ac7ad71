// SPDX-License-Identifier: Apache-2.0
//! What work must at least compute and move, and how long that takes a device at its peak (the
//! roofline: Williams, Waterman and Patterson 2009): an estimate. Of PyTorch's operators by the
//! shapes of their inputs (`inputs.rs`, `operators.rs`), of its elementwise kernels by name and
//! grid (`kernels.rs`). Each input is read once and each result written once, from and to the
//! device's memory: what a cache keeps makes less of it, what is read again more.

pub mod inputs;
pub mod kernels;
pub mod operators;

use std::ops::AddAssign;

use verdict::analysis::peaks::Peaks;

/// What computes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Pipe {
    /// Tensor cores, in 16 bits.
    Tensor16,
    /// Tensor cores, in TF32.
    Tf32,
    /// No tensor cores.
    Fp32,
    /// Not known, or nothing that counts.
    #[default]
    Unknown,
}

/// Work, as an estimate.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct Work {
    /// Multiplications and additions of matrix products, convolutions and attention; of others 0.
    pub flops: f64,
    /// Read and written.
    pub bytes: f64,
}

impl AddAssign for Work {
    fn add_assign(&mut self, other: Work) {
        self.flops += other.flops;
        self.bytes += other.bytes;
    }
}

/// The shortest time for some work, ns.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Roof {
    /// To compute it; `None`: on what is not known.
    pub computing: Option<f64>,
    /// To move it.
    pub moving: f64,
}

impl Roof {
    /// Of this work on a device with these peaks.
    pub fn of(work: Work, pipe: Pipe, peaks: Peaks) -> Roof {
        let peak = match pipe {
            Pipe::Tensor16 => Some(peaks.tensor_16_bit),
            Pipe::Tf32 => Some(peaks.tensor_16_bit / 2.0),
            Pipe::Fp32 => Some(peaks.fp32),
            Pipe::Unknown => None,
        };
        let computing = match work.flops > 0.0 {
            true => peak.map(|peak| work.flops / peak * 1e9),
            false => Some(0.0),
        };
        Roof { computing, moving: work.bytes / peaks.memory * 1e9 }
    }

    /// The longer of both, and whether that is moving; `None`: not known.
    pub fn limit(self) -> Option<(f64, bool)> {
        let computing = self.computing?;
        Some((computing.max(self.moving), self.moving >= computing))
    }
}
