// SPDX-License-Identifier: Apache-2.0
//! What the host did: API calls, waits, NVTX ranges, calls into the operating system; and what its
//! threads are called.

use foldhash::{HashMap, HashMapExt, HashSet};
use trace::event::{OPEN_ENDED, START_END};
use verdict::run::{Range, Span};

use super::devices::each;
use super::ids::tid;
use super::open::refused;
use super::rows::{time, Reader, Sink};
use super::schema::{Cells, Wanted};
use super::work::correlation;
use crate::assemble::{ForeignCall, Named};
use crate::{OsCall, ReadError};

/// The tables read here.
pub(super) static TABLES: [Wanted; 4] = [
    Wanted {
        names: &["CUPTI_ACTIVITY_KIND_RUNTIME", "CUPTI_ACTIVITY_KIND_DRIVER"],
        columns: &["start", "end", "globalTid", "correlationId", "nameId", "returnValue", "eventClass"],
        needed: 2,
    },
    Wanted {
        names: &["CUPTI_ACTIVITY_KIND_SYNCHRONIZATION"],
        columns: &["start", "end", "globalPid", "correlationId", "syncType", "streamId"],
        needed: 2,
    },
    Wanted {
        names: &["NVTX_EVENTS"],
        columns: &["start", "end", "eventType", "globalTid", "text", "textId", "domainId"],
        needed: 3,
    },
    Wanted { names: &["OSRT_API"], columns: &["start", "end", "globalTid", "nameId"], needed: 2 },
];

/// `eventClass` of the record around a call whose call stack was taken (`nsys profile
/// --cudabacktrace`).
const BACKTRACE: i64 = 67;
/// `eventType` of ranges of push and pop, and of such from text files.
const PUSH_POP: [i64; 2] = [59, 70];
/// Of start and end, likewise.
const STARTS_ENDS: [i64; 2] = [60, 71];
/// `eventType` of the row that names a domain.
const DOMAIN: i64 = 75;

/// Reads all of them; one without the columns that it needs is left out with a note.
pub(super) fn read(reader: &mut Reader<'_>) -> Result<(), ReadError> {
    let [calls_table, waits_table, ranges_table, os_table] = &TABLES;
    if is_complete(reader, calls_table) {
        calls(reader, calls_table)?;
    }
    if is_complete(reader, waits_table) {
        waits(reader, waits_table)?;
    }
    if is_complete(reader, ranges_table) {
        ranges(reader, ranges_table)?;
    }
    if is_complete(reader, os_table) {
        os_calls(reader, os_table)?;
    }
    let Reader { connection, schema, sink, .. } = reader;
    let mut names = Vec::new();
    each(connection, schema, "ThreadNames", &["globalTid", "nameId"], |cells| {
        let thread = cells.whole(0).and_then(|global| sink.ids.known_thread(global));
        names.extend(thread.zip(cells.whole(1)));
    })?;
    for (thread, number) in names {
        let name = sink.names.id(number, &mut sink.assembly)?;
        if let (Some(t), Some(name)) = (sink.assembly.run.threads.get_mut(thread), name) {
            t.name = name;
        }
    }
    Ok(())
}

fn is_complete(reader: &mut Reader<'_>, wanted: &Wanted) -> bool {
    let lacking = reader.schema.find(wanted).find_map(|t| Some((t.name.clone(), t.lacks(wanted)?)));
    if let Some((table, column)) = &lacking {
        reader.sink.notes.push(format!("the table {table} has no column {column} and is left out"));
    }
    lacking.is_none()
}

/// The record around a call, which has the call's correlation id.
struct Around {
    process: u32,
    thread: usize,
    call: ForeignCall,
}

fn calls(reader: &mut Reader<'_>, wanted: &'static Wanted) -> Result<(), ReadError> {
    let mut around: Vec<Around> = Vec::new();
    reader.each(wanted, |sink, cells| {
        let Some((span, thread)) = placed(sink, cells, 2) else { return Ok(()) };
        let name = Named { string: sink.name([cells.whole(4)])?, packed: 0 };
        let result = cells.whole(5).map_or(0, |n| n as u32);
        let call = ForeignCall { span, correlation: correlation(cells.whole(3)), name, result, site: 0 };
        if cells.whole(6) == Some(BACKTRACE) {
            around.push(Around { process: sink.ids.process(cells.whole(2)), thread, call });
        } else {
            sink.assembly.call(thread, call);
        }
        Ok(())
    })?;
    if around.is_empty() {
        return Ok(());
    }
    // it takes the place of a call that has no record of its own; else the call would be there
    // twice
    let assembly = &mut reader.sink.assembly;
    let threads = assembly.run.threads.iter().zip(&assembly.process_of_thread);
    let own: HashSet<(u32, u32)> =
        threads.flat_map(|(t, &process)| t.calls.iter().map(move |c| (process, c.correlation))).collect();
    for Around { process, thread, call } in around {
        if call.correlation == 0 || !own.contains(&(process, call.correlation)) {
            assembly.call(thread, call);
        }
    }
    Ok(())
}

/// When a row was, and where its thread's events go.
#[inline]
fn placed(sink: &mut Sink<'_>, cells: &Cells<'_, '_>, thread: usize) -> Option<(Span, usize)> {
    let span = sink.span(cells)?;
    let at = sink.ids.thread(cells.whole(thread), &mut sink.assembly);
    sink.refused.unplaced += u64::from(at.is_none());
    Some((span, at?))
}

fn waits(reader: &mut Reader<'_>, wanted: &'static Wanted) -> Result<(), ReadError> {
    reader.each(wanted, |sink, cells| {
        if let Some(span) = sink.span(cells) {
            let process = sink.ids.process(cells.whole(2));
            let (what, stream) = (cells.number(4), cells.number(5));
            sink.assembly.wait_of(process, span, correlation(cells.whole(3)), what, stream);
        }
        Ok(())
    })?;
    Ok(())
}

fn ranges(reader: &mut Reader<'_>, wanted: &'static Wanted) -> Result<(), ReadError> {
    let domains = domains(reader)?;
    // the run's string by process, domain and number of the text: a range of a domain is shown as
    // nsys does, MPI:Send
    let mut qualified: HashMap<(u32, i64, i64), u32> = HashMap::new();
    reader.each(wanted, |sink, cells| {
        let style = match cells.whole(2) {
            Some(t) if PUSH_POP.contains(&t) => 0,
            Some(t) if STARTS_ENDS.contains(&t) => START_END,
            _ => return Ok(()),
        };
        let (span, flags) = match (time(cells.whole(0)), cells.whole(1)) {
            // not closed when the capture ended
            (Some(start), None) => (Span { start, end: start }, OPEN_ENDED),
            _ => match sink.span(cells) {
                Some(span) => (span, 0),
                None => return Ok(()),
            },
        };
        let Some(thread) = sink.ids.thread(cells.whole(3), &mut sink.assembly) else {
            sink.refused.unplaced += 1;
            return Ok(());
        };
        let domain = match cells.whole(6) {
            Some(domain) if domain != 0 && !domains.is_empty() => {
                let process = sink.ids.process(cells.whole(3));
                domains.get(&(process, domain)).map(|name| (process, domain, name))
            }
            _ => None,
        };
        let name = match (domain, cells.text(4), cells.whole(5)) {
            (None, Some(text), _) => sink.assembly.string(text),
            (None, None, number) => sink.name([number])?,
            (Some((.., domain)), Some(text), _) => {
                let text = [domain.as_slice(), b":", text].concat();
                sink.assembly.string(&text)
            }
            (Some((process, number, domain)), None, text) => {
                match qualified.get(&(process, number, text.unwrap_or(-1))) {
                    Some(&name) => name,
                    None => {
                        let plain = sink.name([text])?;
                        let plain = sink.assembly.run.definitions.string(plain).unwrap_or("").as_bytes();
                        let name = [domain.as_slice(), b":", plain].concat();
                        let name = sink.assembly.string(&name);
                        qualified.insert((process, number, text.unwrap_or(-1)), name);
                        name
                    }
                }
            }
        };
        let flags = flags | style;
        sink.assembly.range(thread, Range { span, name, flags, ..Range::default() });
        Ok(())
    })?;
    Ok(())
}

/// Names of the domains, by process and number.
fn domains(reader: &mut Reader<'_>) -> Result<HashMap<(u32, i64), Vec<u8>>, ReadError> {
    let mut found = HashMap::new();
    let Reader { connection, schema, sink, .. } = reader;
    let Some(table) = schema.table("NVTX_EVENTS").filter(|t| t.column("domainId").is_some()) else {
        return Ok(found);
    };
    // one row in thousands: SQLite itself passes over the others
    let error = |e: rusqlite::Error| refused(&e, &table.name);
    let sql = table.select(&["domainId", "globalTid", "text", "textId"]) + " WHERE eventType = ?1";
    let mut select = connection.prepare(&sql).map_err(error)?;
    let mut rows = select.query([DOMAIN]).map_err(error)?;
    let mut numbered = Vec::new();
    while let Some(row) = rows.next().map_err(error)? {
        let cells = Cells(row);
        let Some(number) = cells.whole(0) else { continue };
        let key = (sink.ids.process(cells.whole(1)), number);
        match (cells.text(2), cells.whole(3)) {
            (Some(text), _) => {
                found.insert(key, text.to_vec());
            }
            (None, Some(text)) => numbered.push((key, text)),
            (None, None) => {}
        }
    }
    for (key, text) in numbered {
        if let Some(name) = sink.names.id(text, &mut sink.assembly)? {
            let name = sink.assembly.run.definitions.string(name).unwrap_or("");
            found.insert(key, name.as_bytes().to_vec());
        }
    }
    Ok(found)
}

fn os_calls(reader: &mut Reader<'_>, wanted: &'static Wanted) -> Result<(), ReadError> {
    reader.each(wanted, |sink, cells| {
        if let Some(span) = sink.span(cells) {
            let name = sink.name([cells.whole(3)])?;
            sink.os_calls.push(OsCall { span, name, tid: cells.whole(2).map_or(0, tid) });
        }
        Ok(())
    })?;
    Ok(())
}
