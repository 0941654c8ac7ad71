// SPDX-License-Identifier: Apache-2.0
//! What holds for the whole export: that it is one, who wrote it, when, and the run that its rows
//! make.

use trace::define::Definition;
use trace::header::sources;
use verdict::text::plural;
use verdict::text::plural::counted;

use super::devices::each;
use super::rows::{Reader, Sink, ZERO};
use super::schema::Schema;
use super::Nsys;
use crate::settle::ORIGIN;
use crate::ReadError;

/// The newest major number of the schema that is known.
const NEWEST_MAJOR: u32 = 3;
/// So many of nsys's own messages about lost events are shown.
const MOST_MESSAGES: usize = 3;

/// An error that says what is missing, if the file cannot be an export with anything of a GPU in
/// it.
pub(super) fn is_nsys(schema: &Schema) -> Result<(), ReadError> {
    if super::work::TABLES.iter().any(|w| schema.find(w).next().is_some()) {
        return match (schema.table("StringIds"), schema.table("StringTable")) {
            (None, Some(_)) => Err(ReadError::new(
                "an SQLite file of nvprof, not of nsys",
                "nvprof has no successor that reads these: record with gapprobe run, torch.profiler or nsys",
            )),
            _ => Ok(()),
        };
    }
    let tables = "CUPTI_ACTIVITY_KIND_KERNEL, _MEMCPY, _MEMSET, _GRAPH_TRACE";
    let known =
        ["StringIds", "META_DATA_EXPORT", "EXPORT_META_DATA", "ANALYSIS_DETAILS", "TARGET_INFO_SYSTEM_ENV"];
    if known.iter().any(|t| schema.table(t).is_some()) {
        return Err(ReadError::new(
            format!("an nsys export without any work of a GPU (none of the tables {tables})"),
            "record with nsys profile --trace=cuda,nvtx,osrt, while the GPU works",
        ));
    }
    let mut names: Vec<&str> = schema.names().collect();
    let more = if names.len() > 5 { ", ..." } else { "" };
    names.truncate(5);
    let holds = if names.is_empty() { "no table at all".to_owned() } else { names.join(", ") + more };
    Err(ReadError::new(
        format!("an SQLite file, but no nsys export: none of the tables {tables}; it has {holds}"),
        "nsys makes one by: nsys export --type sqlite -o OUT.sqlite REPORT.nsys-rep",
    ))
}

/// All rows were read: the run, and what to remark.
pub(super) fn finish(reader: Reader<'_>) -> Result<Nsys, ReadError> {
    let about = About::read(&reader)?;
    let rows = reader.rows;
    let no_calls = super::host::TABLES.first().is_some_and(|w| reader.schema.find(w).next().is_none());
    let Sink { mut assembly, ids, devices, mut refused, mut notes, mut os_calls, .. } = reader.sink;
    let settled = assembly.settle(os_calls.iter().map(|c| c.span));
    let before = os_calls.len();
    os_calls.retain_mut(|c| settled.span(c.span).map(|span| c.span = span).is_some());
    refused.no_time += settled.dropped + (before - os_calls.len()) as u64;
    if !assembly.run.devices.iter().any(|d| d.ops() > 0) {
        let lost = if refused.lost() > 0 {
            format!(", {} of which could not be used", refused.lost())
        } else {
            String::new()
        };
        return Err(ReadError::new(
            format!("an nsys export with no operation of a GPU among its {}{lost}", counted(rows, "row")),
            "record with nsys profile --trace=cuda,nvtx,osrt, while the GPU works",
        ));
    }
    let ranks = ids.ranks();
    let numbering = devices.numbering(&ranks);
    let ordinal = |n: u32| numbering.ordinals.get(n as usize).copied().unwrap_or(n);
    for n in 0..numbering.ordinals.len() as u32 {
        if let Some(info) = devices.info(n) {
            assembly.define(ordinal(n), Definition::Device(info));
        }
    }
    assembly.renumber_devices(ordinal);
    assembly.in_order(&ranks);
    if ids.processes() > 1 {
        refused.orphans += ids.nameless;
    }
    let mut run = assembly.finish();
    if !about.missing.is_empty() {
        run.missing = about.missing;
    }
    // of one whose operations all lay too far away
    run.devices.retain(|d| d.ops() > 0);
    refused.duplicates += run.duplicates;
    // a range may have been open long before the capture began: that time was not observed
    let ops = run.devices.iter().flat_map(|d| &d.streams).flat_map(|s| s.ops.iter().map(|o| o.start));
    let first_use = ops.chain(run.threads.iter().flat_map(|t| t.calls.iter().map(|c| c.start))).min();
    let h = &mut run.header;
    h.first_use = first_use.unwrap_or(h.start_monotonic);
    h.driver_version = about.driver;
    h.sources |= sources::CALLBACKS;
    if let (1, Some(pid)) = (ids.processes(), ids.pid(0)) {
        h.pid = pid;
    }
    // where the run's first event was in the export's time
    let first =
        i128::from(settled.first) - i128::from(ZERO) + i128::from(h.start_monotonic) - i128::from(ORIGIN);
    if let Some(utc) = about.utc {
        let realtime = i128::from(utc) + first - i128::from(about.zero);
        h.start_realtime = u64::try_from(realtime).unwrap_or(0);
        run.clocks = vec![(h.start_monotonic, h.start_realtime)];
    }
    if about.major > NEWEST_MAJOR {
        notes.push(format!(
            "written by a newer nsys (schema {}): what is new in it is not read",
            about.schema
        ));
    }
    if no_calls {
        notes.push(
            "the export has no table of API calls (CUPTI_ACTIVITY_KIND_RUNTIME): what the host did is not known".to_owned(),
        );
    }
    if numbering.doubtful {
        notes.push(
            "several processes use a GPU of the same number and the export does not tell whether it is the same GPU: \
             taken as different ones"
                .to_owned(),
        );
    }
    if refused.orphans > 0 {
        notes.push(format!(
            "{} {} to names or processes that the file does not have",
            counted(refused.orphans, "row"),
            plural::of(refused.orphans, "refers", "refer")
        ));
    }
    notes.extend(about.messages);
    Ok(Nsys { run, refused, rows, bytes: 0, notes, os_calls })
}

/// Lost events (a message in small letters) that a verdict needs: all but those of sources that it
/// does not rest on. How many they are nsys does not say.
fn needed(message: &str) -> bool {
    const OTHERS: [&str; 8] =
        ["os runtime", "sampl", "sched", "thread state", "context switch", "ftrace", "opengl", "vulkan"];
    message.contains("cuda") || !OTHERS.iter().any(|other| message.contains(other))
}

/// What small tables say.
#[derive(Default)]
struct About {
    /// Of the schema, 0 if not told.
    major: u32,
    schema: String,
    /// When the capture began, ns since 1970.
    utc: Option<i64>,
    /// The export's time then, ns.
    zero: i64,
    /// CUDA version of the driver, as CUDA numbers it.
    driver: u32,
    /// What nsys itself says was lost.
    messages: Vec<String>,
    /// The first of them that a verdict cannot do without.
    missing: String,
}

impl About {
    fn read(reader: &Reader<'_>) -> Result<About, ReadError> {
        let mut about = About::default();
        let (c, schema) = (reader.connection, reader.schema);
        let text = |t: Option<&[u8]>| String::from_utf8_lossy(t.unwrap_or(b"")).into_owned();
        for table in ["META_DATA_EXPORT", "EXPORT_META_DATA"] {
            each(c, schema, table, &["name", "value"], |cells| match cells.text(0) {
                Some(b"EXPORT_SCHEMA_VERSION") => about.schema = text(cells.text(1)),
                Some(b"EXPORT_SCHEMA_VERSION_MAJOR") => {
                    let told = cells.small(1).or_else(|| text(cells.text(1)).parse().ok());
                    about.major = told.unwrap_or(0);
                }
                _ => {}
            })?;
        }
        each(c, schema, "TARGET_INFO_SESSION_START_TIME", &["utcEpochNs", "systemClockNs"], |cells| {
            about.utc = cells.whole(0).filter(|&t| t > 0);
            about.zero = cells.whole(1).unwrap_or(0);
        })?;
        each(c, schema, "TARGET_INFO_SYSTEM_ENV", &["name", "value"], |cells| {
            if cells.text(0) == Some(b"CudaDriverVersion") {
                about.driver = text(cells.text(1)).parse().unwrap_or(0);
            }
        })?;
        each(c, schema, "DIAGNOSTIC_EVENT", &["text"], |cells| {
            let message = text(cells.text(0));
            let words = message.to_ascii_lowercase();
            let lost =
                ["lost", "dropped", "not all"].iter().any(|w| words.contains(w)) && words.contains("event");
            let told = format!("nsys says: {}", message.trim());
            if lost && about.missing.is_empty() && needed(&words) {
                about.missing = told.trim_end_matches('.').to_owned();
            }
            if lost && about.messages.len() < MOST_MESSAGES && !about.messages.contains(&told) {
                about.messages.push(told);
            }
        })?;
        Ok(about)
    }
}
