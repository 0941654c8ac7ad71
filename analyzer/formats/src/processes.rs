// SPDX-License-Identifier: Apache-2.0
//! Several processes in one trace: CUPTI counts correlation ids and graph ids from 1 in each of
//! them, and a run joins by these ids alone. So each process's ids are moved behind those of the
//! process before it; the first keeps its own.

use std::mem::take;

use foldhash::{HashMap, HashMapExt};
use verdict::run::{Device, NONE};

use super::assemble::Assembly;

/// The ids of one kind that a process uses, 0 (none) left out.
#[derive(Clone, Copy, Debug)]
struct Ids {
    least: u32,
    most: u32,
    /// Added to each of them, modulo 2^32.
    add: u32,
}

impl Default for Ids {
    fn default() -> Ids {
        Ids { least: u32::MAX, most: 0, add: 0 }
    }
}

impl Ids {
    fn see(&mut self, id: u32) {
        if id != 0 {
            (self.least, self.most) = (self.least.min(id), self.most.max(id));
        }
    }

    fn moved(&self, id: u32) -> u32 {
        match id {
            0 => 0,
            // past 2^32 ids begin anew, as CUPTI's do: then time tells them apart
            id => id.wrapping_add(self.add).max(1),
        }
    }
}

/// Lays the ranges of ids one behind the other.
fn lay_out<'a>(all: impl Iterator<Item = &'a mut Ids>) {
    let mut next: Option<u32> = None;
    for ids in all.filter(|i| i.most != 0) {
        ids.add = next.map_or(0, |n| n.wrapping_sub(ids.least));
        next = Some(ids.most.wrapping_add(ids.add).wrapping_add(1));
    }
}

impl Assembly {
    /// Processes, devices, streams and threads by their numbers, where the rows of a trace come in
    /// no order: what is met first is then another one each time. `ranks`: of the processes, by the
    /// numbers that they were given on the way. Nothing is added afterwards.
    pub(super) fn in_order(&mut self, ranks: &[u32]) {
        let rank = |process: u32| ranks.get(process as usize).copied().unwrap_or(process);
        let owners = self.process_of_thread.iter_mut().chain(&mut self.process_of_wait);
        owners.for_each(|process| *process = rank(*process));
        let mut devices = take(&mut self.run.devices);
        let ordinal = |d: usize| devices.get(d).map(|d| d.ordinal);
        let mut keys: Vec<_> = take(&mut self.streams)
            .into_iter()
            .map(|(mut key, at)| {
                key.process = rank(key.process);
                (ordinal(at.0), key, at)
            })
            .collect();
        keys.sort_unstable_by_key(|&(ordinal, k, _)| (ordinal, k.process, k.context, k.stream));
        for (_, key, (d, s)) in keys {
            let Some(from) = devices.get_mut(d) else { continue };
            let Some(stream) = from.streams.get_mut(s).map(take) else { continue };
            let ordered = &mut self.run.devices;
            if ordered.last().is_none_or(|last| last.ordinal != from.ordinal) {
                ordered.push(Device { ordinal: from.ordinal, info: from.info, streams: Vec::new() });
            }
            let index = ordered.len() - 1;
            let streams = &mut ordered[index].streams;
            streams.push(stream);
            self.streams.insert(key, (index, streams.len() - 1));
        }
        let threads = take(&mut self.run.threads).into_iter().zip(take(&mut self.process_of_thread));
        let mut threads: Vec<_> = threads.collect();
        threads.sort_by_key(|(thread, process)| (*process, thread.tid));
        (self.run.threads, self.process_of_thread) = threads.into_iter().unzip();
    }

    /// See the file's head. Nothing to do for a single process.
    pub(super) fn tell_processes_apart(&mut self) {
        let streams = self.streams.keys().map(|k| k.process);
        let owners = self.process_of_thread.iter().chain(&self.process_of_wait).copied();
        let processes = streams.chain(owners).max().unwrap_or(0) as usize + 1;
        if processes == 1 {
            return;
        }
        let run = &mut self.run;
        let mut correlations = vec![Ids::default(); processes];
        let mut graphs = vec![Ids::default(); processes];
        for (key, &(device, stream)) in &self.streams {
            let process = key.process as usize;
            for o in run.devices.get(device).and_then(|d| d.streams.get(stream)).iter().flat_map(|s| &s.ops) {
                correlations[process].see(o.correlation);
                graphs[process].see(o.graph);
            }
        }
        for (t, &process) in run.threads.iter().zip(&self.process_of_thread) {
            t.calls.iter().for_each(|c| correlations[process as usize].see(c.correlation));
        }
        for (w, &process) in run.waits.iter().zip(&self.process_of_wait) {
            correlations[process as usize].see(w.correlation);
        }
        lay_out(correlations.iter_mut());
        lay_out(graphs.iter_mut());
        // a wait names its stream by its number alone: where two processes have that number, it
        // names none
        let mut owner: HashMap<u32, Option<u32>> = HashMap::new();
        for (key, &(device, stream)) in &self.streams {
            let of = owner.entry(key.stream).or_insert(Some(key.process));
            *of = of.filter(|&p| p == key.process);
            let ops = run.devices.get_mut(device).and_then(|d| d.streams.get_mut(stream));
            for o in ops.into_iter().flat_map(|s| &mut s.ops) {
                o.correlation = correlations[key.process as usize].moved(o.correlation);
                o.graph = graphs[key.process as usize].moved(o.graph);
            }
        }
        for (t, &process) in run.threads.iter_mut().zip(&self.process_of_thread) {
            let ids = correlations[process as usize];
            t.calls.iter_mut().for_each(|c| c.correlation = ids.moved(c.correlation));
        }
        for (w, &process) in run.waits.iter_mut().zip(&self.process_of_wait) {
            w.correlation = correlations[process as usize].moved(w.correlation);
            if owner.get(&w.stream).is_some_and(|o| *o != Some(process)) {
                w.stream = NONE;
            }
        }
    }
}
