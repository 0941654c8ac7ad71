// SPDX-License-Identifier: Apache-2.0
//! What stands around the events of a trace: the keys of the outer object, in front of the list of
//! events and behind it.

use serde_json::Value as Json;
use verdict::output::chrome::facts;
use verdict::run::MAX_TIME;

use super::own::Own;
use super::scan::{Bad, Scan, Scanned, Value};

/// Characters of a line that are kept.
const MOST_LINE: usize = 1000;

/// Facts of the whole trace.
#[derive(Debug, Default, Clone)]
pub(super) struct Head {
    /// `deviceProperties`, as they stand.
    pub(super) devices: Vec<Json>,
    /// `baseTimeNanoseconds`: what the stamps count from, ns since 1970 (0: they count from 1970
    /// themselves).
    pub(super) base: i64,
    /// `cupti_version`, `cuda_driver_version`.
    pub(super) cupti: u32,
    pub(super) driver: u32,
    /// `distributedInfo`: rank and world size.
    pub(super) rank: Option<u32>,
    pub(super) world: u32,
    /// The trace is a list of events, not an object with one in it.
    array: bool,
    /// The trace is gapprobe's own.
    pub(super) own: Option<Own>,
    /// Events left out when it was written (see [`super::own`]).
    pub(super) left_out: u64,
    /// From this moment of the trace on nothing is, ns.
    pub(super) complete_from: Option<u64>,
    /// The line that was said of the whole, of our own traces.
    pub(super) line: Option<String>,
    /// Any key that only Kineto or gapprobe writes was there.
    pub(super) schema: bool,
}

/// Reads from the begin of the text to behind the `[` of the list of events. `Ok(None)`: valid JSON
/// so far, and no list of events in it.
pub(super) fn before_events(text: &[u8], head: &mut Head) -> Scanned<Option<usize>> {
    let mut scan = Scan::new(text, if text.starts_with(b"\xef\xbb\xbf") { 3 } else { 0 });
    match scan.peek()? {
        b'[' => {
            scan.expect(b'[')?;
            head.array = true;
            return Ok(Some(scan.at()));
        }
        b'{' => scan.expect(b'{')?,
        _ => return Err(Bad::Syntax(scan.at())),
    }
    if scan.take(b'}')? {
        return Ok(None);
    }
    loop {
        let key = scan.string()?;
        scan.expect(b':')?;
        if key == b"traceEvents" && scan.take(b'[')? {
            return Ok(Some(scan.at()));
        }
        head.take(key, scan.value()?);
        if !scan.take(b',')? {
            scan.expect(b'}')?;
            return Ok(None);
        }
    }
}

/// Reads from behind the `]` of the list of events to the end of the trace: that of the outer
/// object; an array's end has nothing behind it. Returns where something stands behind the end (or
/// the text ends).
pub(super) fn after_events(text: &[u8], head: &mut Head) -> Scanned<usize> {
    let mut scan = Scan::new(text, 0);
    if !head.array {
        loop {
            match scan.peek() {
                Ok(b',') => scan.expect(b',')?,
                Ok(_) => break scan.expect(b'}')?,
                Err(_) => return Ok(text.len()),
            }
            let key = scan.string()?;
            scan.expect(b':')?;
            head.take(key, scan.value()?);
        }
    }
    Ok(scan.peek().map_or(text.len(), |_| scan.at()))
}

impl Head {
    /// The trace is a list of events, not an object with one in it.
    pub(super) fn is_array(&self) -> bool {
        self.array
    }

    /// Where a trace of ours begins to be whole, in the recording's time; `None` where nothing is
    /// left out in front of that.
    pub(super) fn whole_from(&self) -> Option<u64> {
        let own = self.own.as_ref().filter(|_| self.left_out > 0)?;
        Some(u64::try_from(own.base).ok()?.saturating_add(self.complete_from?).min(MAX_TIME))
    }

    fn take(&mut self, key: &[u8], value: Value<'_>) {
        let number = |v: Value<'_>| match v {
            Value::Bare(t) | Value::Text(t) => super::time::whole(t),
            Value::Nested(_) => None,
        };
        let json = |v: Value<'_>| match v {
            Value::Nested(t) => serde_json::from_slice::<Json>(t).ok(),
            _ => None,
        };
        match key {
            b"deviceProperties" => {
                if let Some(Json::Array(list)) = json(value) {
                    self.devices = list;
                }
            }
            b"baseTimeNanoseconds" => self.base = number(value).unwrap_or(0),
            b"cupti_version" => self.cupti = number(value).and_then(|n| u32::try_from(n).ok()).unwrap_or(0),
            b"cuda_driver_version" => {
                self.driver = number(value).and_then(|n| u32::try_from(n).ok()).unwrap_or(0)
            }
            b"distributedInfo" => {
                let info = json(value).unwrap_or_default();
                let of = |key: &str| info.get(key).and_then(Json::as_u64).and_then(|n| u32::try_from(n).ok());
                self.rank = of("rank");
                self.world = of("world_size").unwrap_or(0);
            }
            _ if key == facts::KEY.as_bytes() => self.own = json(value).and_then(Own::new),
            b"otherData" => {
                let other = json(value).unwrap_or_default();
                let line = other.get("line").and_then(Json::as_str);
                self.line = line.map(|line| line.chars().take(MOST_LINE).collect());
                let left = |key: &str| other.get("left_out_at_the_size_limit")?.get(key)?.as_u64();
                self.complete_from = left("complete_from_ns");
                let counts = ["gpu_operations", "api_calls", "ranges"].map(|k| left(k).unwrap_or(0));
                self.left_out = counts.iter().fold(0u64, |a, b| a.saturating_add(*b)).min(1 << 40);
            }
            _ => return,
        }
        self.schema = true;
    }
}
