// SPDX-License-Identifier: Apache-2.0
//! Which GPU it was. A row names its GPU by the number that its process has for it: under
//! `CUDA_VISIBLE_DEVICES` every process may call its own GPU 0, and two processes may share one.
//!
//! Two processes' numbers mean the same GPU if the export says so (`TARGET_INFO_CUDA_DEVICE`: GPU
//! or uuid by process and number; or there is one GPU in the machine). Where it says nothing, they
//! are two: one taken for two looks idle while the other process uses it, which the report says;
//! two taken for one would hide that either is idle.
//!
//! Numbers in the run: those of the processes, if no two GPUs have the same; else nsys's ids of the
//! GPUs; else 0, 1, 2 ... What several processes call by different numbers has that of the process
//! with the lowest id, and 0, 1, 2 ... goes by these, too: the order of the rows, which is none,
//! tells nothing.

use foldhash::HashMap;
use rusqlite::Connection;
use trace::DeviceInfo;

use super::open::refused;
use super::schema::{Cells, Schema};
use crate::assemble::Assembly;
use crate::ReadError;

/// More GPUs than in any capture: rows of others are damage.
const MOST_DEVICES: u32 = 1024;

/// A GPU, as far as the export tells.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
enum Gpu {
    /// nsys's id of it, on this machine.
    Id(i64, i64),
    Uuid(Vec<u8>),
    /// Not told: the number that this process has for it.
    Of(u32, u32),
}

/// A row of `TARGET_INFO_GPU`.
#[derive(Debug)]
struct Described {
    id: Option<i64>,
    uuid: Vec<u8>,
    info: DeviceInfo,
}

/// nsys's id of a GPU, and its uuid.
type Told = (Option<i64>, Vec<u8>);

/// All GPUs that did something.
#[derive(Debug, Default)]
pub(super) struct Devices {
    described: Vec<Described>,
    /// By process id (`None`: any) and number: nsys's id, uuid.
    told: HashMap<(Option<u32>, u32), Told>,
    numbers: HashMap<Gpu, u32>,
    /// By our number.
    found: Vec<Found>,
}

/// A GPU that did something.
#[derive(Debug)]
struct Found {
    gpu: Gpu,
    /// Processes that use it, and the number by which each calls it.
    called: Vec<(u32, u32)>,
}

/// How the GPUs are numbered in the run.
#[derive(Debug)]
pub(super) struct Numbering {
    /// By our number.
    pub(super) ordinals: Vec<u32>,
    /// The same number in several processes, and nobody says whether it is the same GPU.
    pub(super) doubtful: bool,
}

impl Devices {
    /// Reads what the export tells of GPUs.
    pub(super) fn read(
        c: &Connection,
        schema: &Schema,
        assembly: &mut Assembly,
    ) -> Result<Devices, ReadError> {
        let mut devices = Devices::default();
        const GPU: [&str; 7] =
            ["id", "uuid", "name", "smCount", "computeMajor", "computeMinor", "totalMemory"];
        each(c, schema, "TARGET_INFO_GPU", &GPU, |cells| {
            let info = DeviceInfo {
                name: assembly.string(cells.text(2).unwrap_or(b"")),
                multiprocessors: cells.number(3),
                compute_major: cells.number(4),
                compute_minor: cells.number(5),
                memory: cells.whole(6).and_then(|n| u64::try_from(n).ok()).unwrap_or(0),
            };
            let uuid = cells.text(1).unwrap_or(b"").to_vec();
            devices.described.push(Described { id: cells.whole(0), uuid, info });
        })?;
        const CUDA: [&str; 4] = ["pid", "cudaId", "gpuId", "uuid"];
        each(c, schema, "TARGET_INFO_CUDA_DEVICE", &CUDA, |cells| {
            let Some(number) = cells.small(1) else { return };
            let uuid = cells.text(3).unwrap_or(b"").to_vec();
            if cells.whole(2).is_some() || !uuid.is_empty() {
                devices.told.insert((cells.small(0), number), (cells.whole(2), uuid));
            }
        })?;
        Ok(devices)
    }

    /// Our number for the GPU that process `process` (with this process id, on this machine) calls
    /// `device`; `None` if there are more than there can be.
    pub(super) fn number(
        &mut self,
        process: u32,
        pid: Option<u32>,
        machine: i64,
        device: u32,
    ) -> Option<u32> {
        let told = self.told.get(&(pid, device)).or_else(|| self.told.get(&(None, device)));
        let gpu = match told {
            Some((Some(id), _)) => Gpu::Id(machine, *id),
            Some((None, uuid)) => match self.described.iter().find(|d| same_uuid(&d.uuid, uuid)) {
                Some(Described { id: Some(id), .. }) => Gpu::Id(machine, *id),
                _ => Gpu::Uuid(uuid.clone()),
            },
            None => match self.described.as_slice() {
                [Described { id: Some(id), .. }] if device == 0 => Gpu::Id(machine, *id),
                _ => Gpu::Of(process, device),
            },
        };
        let next = self.found.len() as u32;
        if next >= MOST_DEVICES && !self.numbers.contains_key(&gpu) {
            return None;
        }
        let found = &mut self.found;
        let number = *self.numbers.entry(gpu.clone()).or_insert_with(|| {
            found.push(Found { gpu, called: Vec::new() });
            next
        });
        let called = &mut found.get_mut(number as usize)?.called;
        if !called.contains(&(process, device)) {
            called.push((process, device));
        }
        Some(number)
    }

    /// How they are numbered in the run. `ranks`: of the processes, by their numbers.
    pub(super) fn numbering(&self, ranks: &[u32]) -> Numbering {
        let doubtful = self.found.iter().any(|f| {
            let clash = |of: &Gpu, other: &Gpu| matches!((of, other), (Gpu::Of(p, d), Gpu::Of(q, e)) if p != q && d == e);
            self.found.iter().any(|other| clash(&f.gpu, &other.gpu))
        });
        let rank = |process: u32| ranks.get(process as usize).copied().unwrap_or(process);
        let first: Vec<(u32, u32)> = self
            .found
            .iter()
            .map(|f| f.called.iter().map(|&(p, device)| (rank(p), device)).min().unwrap_or_default())
            .collect();
        let called: Vec<u32> = first.iter().map(|f| f.1).collect();
        let ids: Option<Vec<u32>> = self
            .found
            .iter()
            .map(|f| match f.gpu {
                Gpu::Id(_, id) => u32::try_from(id).ok(),
                _ => None,
            })
            .collect();
        let counted =
            || first.iter().map(|f| first.iter().filter(|other| *other < f).count() as u32).collect();
        let ordinals =
            [Some(called), ids].into_iter().flatten().find(|n| distinct(n)).unwrap_or_else(counted);
        Numbering { ordinals, doubtful }
    }

    /// What is known of the GPU with our number.
    pub(super) fn info(&self, number: u32) -> Option<DeviceInfo> {
        let gpu = &self.found.get(number as usize)?.gpu;
        let described = self.described.iter().find(|d| match gpu {
            Gpu::Id(_, id) => d.id == Some(*id),
            Gpu::Uuid(uuid) => same_uuid(&d.uuid, uuid),
            Gpu::Of(_, device) => d.id == Some(i64::from(*device)),
        });
        described.map(|d| d.info)
    }
}

/// With and without nvidia-smi's `GPU-` in front.
fn same_uuid(a: &[u8], b: &[u8]) -> bool {
    let plain = |u: &[u8]| u.strip_prefix(b"GPU-").unwrap_or(u).to_ascii_lowercase();
    !a.is_empty() && plain(a) == plain(b)
}

fn distinct(numbers: &[u32]) -> bool {
    let mut sorted = numbers.to_vec();
    sorted.sort_unstable();
    sorted.windows(2).all(|w| w[0] != w[1])
}

/// Calls `take` for each row of a small table, if it is there.
pub(super) fn each(
    connection: &Connection,
    schema: &Schema,
    name: &str,
    columns: &[&str],
    mut take: impl FnMut(&Cells<'_, '_>),
) -> Result<(), ReadError> {
    let Some(table) = schema.table(name) else { return Ok(()) };
    let error = |e: rusqlite::Error| refused(&e, &table.name);
    let mut select = connection.prepare(&table.select(columns)).map_err(error)?;
    let mut rows = select.query([]).map_err(error)?;
    while let Some(row) = rows.next().map_err(error)? {
        take(&Cells(row));
    }
    Ok(())
}
