// SPDX-License-Identifier: Apache-2.0
//! nsys's 64-bit ids: hardware and virtual machine (8 bits each), process (24), thread (24).
//! Processes and threads get small numbers here, in the order in which they are first seen. Rows
//! come in any order (nsys 2025.6 and later do not sort them), so in the end they are numbered by
//! their ids (`ranks`).

use foldhash::HashMap;
use rusqlite::Connection;

use super::schema::Schema;
use crate::assemble::Assembly;

/// The bits below are the thread's.
const THREAD_BITS: u32 = 24;
const MASK: i64 = 0xff_ffff;

/// The process's part of an id of a process or of a thread.
fn process_bits(global: i64) -> i64 {
    global >> THREAD_BITS
}

/// Processes and threads by number.
#[derive(Debug)]
pub(super) struct Ids<'c> {
    tables: (&'c Connection, &'c Schema),
    /// The process of rows that name none: looked for when the first of them comes.
    least: Option<Option<i64>>,
    processes: HashMap<i64, u32>,
    keys: Vec<i64>,
    last_process: Option<(i64, u32)>,
    threads: HashMap<i64, Option<usize>>,
    last_thread: Option<(i64, Option<usize>)>,
    /// Rows that name no process.
    pub(super) nameless: u64,
}

impl<'c> Ids<'c> {
    /// None yet, of these tables.
    pub(super) fn new(connection: &'c Connection, schema: &'c Schema) -> Ids<'c> {
        Ids {
            tables: (connection, schema),
            least: None,
            processes: HashMap::default(),
            keys: Vec::new(),
            last_process: None,
            threads: HashMap::default(),
            last_thread: None,
            nameless: 0,
        }
    }

    /// The number of a process, by its id or that of one of its threads. A row that names none
    /// belongs to that with the lowest id: where there is one process alone, that is right.
    #[inline]
    pub(super) fn process(&mut self, global: Option<i64>) -> u32 {
        // old exports have 0 where there is nothing
        let Some(key) = global.filter(|&g| g != 0).map(process_bits) else {
            self.nameless += 1;
            return self.of_nameless();
        };
        self.numbered(key)
    }

    #[cold]
    fn of_nameless(&mut self) -> u32 {
        let (connection, schema) = self.tables;
        let least = *self.least.get_or_insert_with(|| least_id(connection, schema).map(process_bits));
        // (of an export that names no process at all there is one, without an id)
        least.map_or(0, |key| self.numbered(key))
    }

    #[inline]
    fn numbered(&mut self, key: i64) -> u32 {
        if let Some((_, number)) = self.last_process.filter(|l| l.0 == key) {
            return number;
        }
        let next = self.keys.len() as u32;
        let keys = &mut self.keys;
        let number = *self.processes.entry(key).or_insert_with(|| {
            keys.push(key);
            next
        });
        self.last_process = Some((key, number));
        number
    }

    /// The place of each process, by its number, among all of them by their ids.
    pub(super) fn ranks(&self) -> Vec<u32> {
        let mut order: Vec<usize> = (0..self.keys.len()).collect();
        order.sort_by_key(|&number| self.keys.get(number));
        let mut ranks = vec![0; order.len()];
        for (rank, &number) in (0..).zip(&order) {
            if let Some(at) = ranks.get_mut(number) {
                *at = rank;
            }
        }
        ranks
    }

    /// How many processes there are.
    pub(super) fn processes(&self) -> usize {
        self.keys.len()
    }

    /// The process id that the system gave it.
    pub(super) fn pid(&self, process: u32) -> Option<u32> {
        self.keys.get(process as usize).map(|k| (k & MASK) as u32)
    }

    /// The machine it ran on, for telling machines apart.
    pub(super) fn machine(&self, process: u32) -> i64 {
        self.keys.get(process as usize).map_or(0, |k| k >> THREAD_BITS)
    }

    /// Where the run keeps a thread's events; `None` where there are too many threads.
    #[inline]
    pub(super) fn thread(&mut self, global: Option<i64>, assembly: &mut Assembly) -> Option<usize> {
        let key = global.unwrap_or(0);
        if let Some((_, at)) = self.last_thread.filter(|l| l.0 == key) {
            return at;
        }
        let at = match self.threads.get(&key) {
            Some(&at) => at,
            None => {
                let process = self.process(global);
                let at = assembly.thread_of(process, self.threads.len() as u32, tid(key));
                self.threads.insert(key, at);
                at
            }
        };
        self.last_thread = Some((key, at));
        at
    }

    /// The threads that have events.
    pub(super) fn known_thread(&self, global: i64) -> Option<usize> {
        self.threads.get(&global).copied().flatten()
    }
}

/// The lowest id of a process, or of a thread, in the tables that are read, if there is one.
fn least_id(connection: &Connection, schema: &Schema) -> Option<i64> {
    let wanted = super::work::TABLES.iter().chain(&super::host::TABLES);
    let tables = wanted.flat_map(|w| schema.find(w));
    let least = tables.flat_map(|t| ["globalPid", "globalTid"].map(|column| t.select_least(column)));
    let least = least.flatten().filter_map(|sql| {
        // (a table that cannot be read says so where it is read)
        connection.query_row(&sql, [], |row| row.get::<_, Option<i64>>(0)).ok().flatten()
    });
    least.min_by_key(|&id| process_bits(id))
}

/// The thread id that the system gave it.
pub(super) fn tid(global: i64) -> u32 {
    (global & MASK) as u32
}
