// SPDX-License-Identifier: Apache-2.0
//! All recorded processes with the figures of their last seconds: what `top` shows and `metrics`
//! hands on.

use std::collections::HashMap;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use cli::live::counted::Counted;
use cli::live::lines::lines;
use cli::live::{load_tail, Figures, RecordingState, MOST_EVENTS};
use trace::Header;

use crate::verbs::exit::Failure;
use crate::verbs::living::{self, header_now, Living};
use crate::verbs::process::monotonic;

/// A process and its figures; none where its recording was gone or could not be read.
pub(crate) struct Watched {
    pub(crate) process: Living,
    pub(crate) figures: Option<Figures>,
}

impl Watched {
    /// What it counts without records, now.
    pub(crate) fn counted(&self) -> Option<Counted> {
        let header = &self.process.header;
        let counted = Counted::of(header, self.process.looked_at);
        // (what counts goes by launches alone, and may take a part of a step for one)
        let counted = counted.map(|c| self.figures.as_ref().map_or(c, |f| f.in_its_units(c)));
        counted.map(|c| match self.process.standing() {
            RecordingState::On | RecordingState::Off | RecordingState::DiskFull => c,
            // its launches are not seen
            RecordingState::Ended => Counted { between: None, ..c },
            // who is stopped, or ends, does not hang
            RecordingState::Stalled | RecordingState::Stopped | RecordingState::Ending => {
                Counted { hang: None, ..c }
            }
        })
    }
}

/// Looks at all of them again and again.
#[derive(Default)]
pub(crate) struct Watch {
    /// Of recordings that did not grow since they were looked at: what is complete of them, and the
    /// figures.
    known: HashMap<PathBuf, (u64, Figures)>,
    /// Whether the lines of the program are looked for, too.
    has_lines: bool,
    /// Time that the last look took.
    pub(crate) took: Duration,
}

impl Watch {
    /// Figures with [`Figures::lines`].
    pub(crate) fn with_lines() -> Watch {
        Watch { has_lines: true, ..Watch::default() }
    }

    /// The last `time` of each process.
    ///
    /// # Errors
    /// As [`living::all`].
    pub(crate) fn look(&mut self, time: Duration, talks: bool) -> Result<Vec<Watched>, Failure> {
        let begun = Instant::now();
        let ns = time.as_nanos() as u64;
        let before = std::mem::take(&mut self.known);
        let processes = living::all(talks)?;
        let mut all = Vec::with_capacity(processes.len());
        for mut process in processes {
            let figures = self.figures(&mut process, ns, &before);
            all.push(Watched { process, figures });
        }
        self.took = begun.elapsed();
        Ok(all)
    }

    fn figures(
        &mut self,
        process: &mut Living,
        ns: u64,
        before: &HashMap<PathBuf, (u64, Figures)>,
    ) -> Option<Figures> {
        let source = process.open().ok()?;
        let header: Header = header_now(&source)?;
        let complete = cli::live::complete_to(&header);
        (process.header, process.looked_at) = (header, monotonic());
        let known = before.get(&process.path).filter(|k| k.0 == complete).map(|k| k.1.clone());
        let figures = match known {
            Some(figures) => figures,
            None => {
                let mut run = load_tail(&source, &process.header, ns, MOST_EVENTS).ok()?;
                let mut figures = Figures::new(&run);
                if self.has_lines {
                    figures.lines = lines(&mut run);
                }
                figures
            }
        };
        self.known.insert(process.path.clone(), (complete, figures.clone()));
        Some(figures)
    }
}
