// SPDX-License-Identifier: Apache-2.0
//! One row an event: what the GPU did, what the host called, why the GPU was idle. RFC 4180; times are ns from the begin of
//! the recording.

use std::io::{self, Write};

use trace::Kind;

use crate::analysis::Analysis;
use crate::chrome::name::demangled;
use crate::run::{Op, Run};

/// The heading.
const COLUMNS: &str = "kind,name,device,stream,thread,start_ns,duration_ns,correlation,bytes,cause\r\n";

/// Writes all events: by device and stream, then by thread, then the idle time.
pub fn csv(run: &Run, analysis: &Analysis, out: &mut dyn Write) -> io::Result<()> {
    let begin = run.header.start_monotonic;
    let at = |time: u64| time.saturating_sub(begin);
    let mut names = std::collections::HashMap::new();
    out.write_all(COLUMNS.as_bytes())?;
    for d in &run.devices {
        for s in &d.streams {
            for o in &s.ops {
                let kind = kind(o);
                let name: &str = match o.kind {
                    Kind::Kernel => names
                        .entry(o.a)
                        .or_insert_with(|| quoted(&demangled(run.definitions.kernel_name(o.a)))),
                    _ => "",
                };
                let bytes = if o.bytes() > 0 { o.bytes().to_string() } else { String::new() };
                let (start, ns) = (at(o.start), o.end - o.start);
                write!(
                    out,
                    "{kind},{name},{},{},,{start},{ns},{},{bytes},\r\n",
                    d.ordinal, s.stream, o.correlation
                )?;
            }
        }
    }
    for t in &run.threads {
        for c in &t.calls {
            let name = quoted(run.call_name(c));
            let (start, ns) = (at(c.start), c.end - c.start);
            write!(out, "call,{name},,,{},{start},{ns},{},,\r\n", t.tid, c.correlation)?;
        }
        for r in &t.ranges {
            let name = quoted(run.definitions.string(r.name).unwrap_or(""));
            write!(out, "range,{name},,,{},{},{},,,\r\n", t.tid, at(r.span.start), r.span.ns())?;
        }
    }
    for d in &analysis.devices {
        for s in &d.slices {
            let call = s.call().and_then(|c| run.call(c)).map_or("", |(_, c)| run.call_name(c));
            let (start, ns) = (at(s.start), s.span().ns());
            write!(out, "idle,{},{},,,{start},{ns},,,{}\r\n", quoted(call), d.ordinal, s.bucket.label())?;
        }
    }
    Ok(())
}

fn kind(o: &Op) -> &'static str {
    match o.kind {
        Kind::Kernel => "kernel",
        Kind::Memcpy => "copy",
        Kind::Memset => "memset",
        _ => "graph",
    }
}

/// A field; quoted where it must be.
fn quoted(text: &str) -> String {
    match text.contains(['"', ',', '\n', '\r']) {
        true => format!("\"{}\"", text.replace('"', "\"\"")),
        false => text.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::quoted;

    #[test]
    fn fields_are_quoted_where_they_must_be() {
        assert_eq!(quoted("plain name"), "plain name");
        assert_eq!(quoted("k<1, 2>"), "\"k<1, 2>\"");
        assert_eq!(quoted("say \"x\""), "\"say \"\"x\"\"\"");
    }
}
