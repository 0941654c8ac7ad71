// SPDX-License-Identifier: Apache-2.0
//! Calls that held the host, by function and, where it is known, the line of the program that made
//! them, and what that cost: the idle time of the GPU blamed on them.
//!
//! Blocked: begin to return of every synchronizing, allocating or freeing call, and of every copy
//! whose call stood until the copy was done. Idle Time: what these calls set off, over the whole
//! valid recording, all devices: they had let the queue run dry. Host Busy: the part of it in which
//! the host is then seen to fetch data or to do something else; the why-idle track shows that part
//! as INPUT or HOST, the rest as SYNC, COPY or ALLOC. A call may block for long and cost nothing:
//! the GPU had work meanwhile, or its work had not begun or was over.

use foldhash::{HashMap, HashMapExt};
use verdict::analysis::Bucket;
use verdict::gaps::{HostView, LaunchOwner};
use verdict::run::{Call, Span};
use verdict::sites::{Site, Sites};

use super::groups::Groups;
use super::table::{
    five, ns, number, percent, percent_of, row, spare_text, text, Cell, Column, Row, AVG, MAX, MED, MIN,
    STDDEV,
};
use super::{Report, Source};

pub(super) static REPORT: Report = Report {
    name: "syncs",
    title: "Blocking Calls",
    what: "calls that held the host: time blocked, and the GPU's idle time it cost",
    needs: "blocking calls",
    usual: true,
    shown: 0,
    columns: &[
        percent("Idle", "idle_pct"),
        ns("Idle Time", "idle_ns"),
        Column { spare: true, ..ns("Host Busy", "host_busy_ns") },
        number("Num Calls", "num_calls"),
        ns("Blocked Time", "blocked_ns"),
        AVG,
        MED,
        MIN,
        MAX,
        STDDEV,
        text("Name", "name"),
        spare_text("Site", "site"),
    ],
    rows,
    each: None,
};

/// Idle time that a blocking call is blamed for.
pub(super) const BLOCKING: [Bucket; 3] = [Bucket::Sync, Bucket::CopyWait, Bucket::Alloc];

/// Less of the blocked time is not worth a word.
const MIN_SHARE_SAID: f64 = 0.1;

/// Flat numbers of the calls that held the host.
fn blockers(source: &Source<'_>) -> Vec<u32> {
    let run = source.run;
    let whose = LaunchOwner::new(run);
    let mut blockers: Vec<u32> = Vec::new();
    for device in &run.devices {
        blockers.extend(HostView::of(run, device, &whose).blockers.iter().map(|b| b.call));
    }
    blockers.sort_unstable();
    blockers.dedup();
    blockers
}

/// What the GPU did while the calls of this name and line held the host, although no idle time is
/// put down to them: where most of their time lies.
pub(crate) fn meanwhile(source: &Source<'_>, name: &str, site: &str) -> String {
    let (run, analysis) = (source.run, source.analysis());
    let mut sites = Sites::new(run);
    let spans = || analysis.devices.iter().map(|d| d.span).filter(|s| s.ns() > 0);
    let first = spans().map(|s| s.start).min().unwrap_or(u64::MAX);
    let last = spans().map(|s| s.end).max().unwrap_or(0);
    let mut idle: Vec<Span> = analysis
        .devices
        .iter()
        .flat_map(|d| &d.slices)
        .map(|s| s.span().clip(Span::new(first, last)))
        .collect();
    idle.sort_unstable();
    let (mut all, mut before, mut behind, mut waits) = (0u64, 0u64, 0u64, 0u64);
    for call in blockers(source).into_iter().filter_map(|b| run.call(b)).map(|(_, c)| c) {
        if run.call_name(call) != name || shown(&mut sites, call) != site {
            continue;
        }
        let span = call.span();
        all += span.ns();
        before += span.end.min(first).saturating_sub(span.start);
        behind += span.end.saturating_sub(span.start.max(last));
        // gaps of one device lie behind each other, those of several may overlap: some time counts
        // twice then
        let from = idle.partition_point(|s| s.start < span.start).saturating_sub(analysis.devices.len());
        let near = idle.iter().skip(from).take_while(|s| s.start < span.end);
        waits += near.map(|s| s.clip(span).ns()).sum::<u64>();
    }
    let worked = all.saturating_sub(before + behind).saturating_sub(waits);
    let parts = [
        (worked, "the GPU had work meanwhile"),
        (before, "before the first GPU operation"),
        (behind, "after the last GPU operation"),
        (waits, "the GPU waited for something else"),
    ];
    let worth = |ns: u64| ns as f64 >= all as f64 * MIN_SHARE_SAID;
    parts.into_iter().filter(|p| worth(p.0)).map(|p| p.1).collect::<Vec<_>>().join(", or ")
}

/// A call's line as the table shows it, empty where it is not known.
fn shown(sites: &mut Sites<'_>, call: &Call) -> String {
    sites.of(call.site).and_then(|s| sites.get(s)).map_or_else(String::new, Site::to_string)
}

fn rows(source: &Source<'_>) -> Vec<Row> {
    let (run, analysis) = (source.run, source.analysis());
    let blockers = blockers(source);
    let mut sites = Sites::new(run);
    let mut groups: Groups<(&str, Option<u32>)> = Groups::new();
    for (_, call) in blockers.iter().filter_map(|&b| run.call(b)) {
        groups.add((run.call_name(call), sites.of(call.site)), call.span().ns());
    }
    // by call and line: what it set off, and how much of that shows as something else
    let mut idle: HashMap<(&str, Option<u32>), (u128, u128)> = HashMap::new();
    let mut all = 0u128;
    for slice in analysis.devices.iter().flat_map(|d| &d.slices) {
        let ns = u128::from(slice.span().ns());
        all += ns;
        if let Some((_, call)) = run.call(slice.set_off_by).filter(|_| BLOCKING.contains(&slice.charged)) {
            let (cost, busy) = idle.entry((run.call_name(call), sites.of(call.site))).or_default();
            *cost += ns;
            *busy += if slice.bucket == slice.charged { 0 } else { ns };
        }
    }
    let line = |site: Option<u32>| site.and_then(|s| sites.get(s)).map_or_else(String::new, Site::to_string);
    let mut rows: Vec<(u128, u128, &str, String, Row)> = groups
        .stats()
        .into_iter()
        .map(|((name, site), s)| {
            let (cost, busy) = idle.get(&(name, site)).copied().unwrap_or_default();
            let busy = if busy > 0 { Cell::Whole(busy) } else { Cell::Nothing };
            let mut cells = row![percent_of(cost, all), cost, busy, s.count, s.total];
            cells.extend(five(&s));
            let line = line(site);
            cells.extend(row![name, line.as_str()]);
            (cost, s.total, name, line, cells)
        })
        .collect();
    rows.sort_by(|a, b| (b.0, b.1, a.2, &a.3).cmp(&(a.0, a.1, b.2, &b.3)));
    rows.into_iter().map(|r| r.4).collect()
}
