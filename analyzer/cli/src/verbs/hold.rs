// SPDX-License-Identifier: Apache-2.0
//! Recording held on from outside. The command writes into the recording of a process of its user
//! until when (`trace::header::HOLD_AT`), again and again, and the process heeds it with its next
//! look at the file. What a killed command left ends by itself.

use std::fs::File;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use trace::header::HOLD_AT;

use crate::verbs::living::{header_now, Living};
use crate::verbs::process;
use crate::verbs::recordings::{self, FileSource};

/// Between two writes.
const RENEWAL: Duration = Duration::from_millis(500);
/// Each holds recording on for so long, ns.
const AHEAD: u64 = 3_000_000_000;
/// The last one holds it on for so long, ns: until another command that does the same has written
/// its next.
const LAST: u64 = 1_000_000_000;
/// Longest wait for the process to heed it: it looks every 50 ms.
const ANSWER: Duration = Duration::from_secs(3);

/// Recording is held on as long as this lives, and [`LAST`] beyond.
pub(crate) struct Hold {
    is_over: Arc<AtomicBool>,
    renewing: Option<JoinHandle<()>>,
}

impl Drop for Hold {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Relaxed);
        if let Some(renewing) = self.renewing.take() {
            renewing.thread().unpark();
            let _ = renewing.join(); // it does not panic
        }
    }
}

impl Hold {
    /// Asks, and waits until that is heeded; with the time from which on recording is held on,
    /// CLOCK_MONOTONIC ns.
    ///
    /// # Errors
    /// Why it is not, in words.
    pub(crate) fn begin(of: &Living) -> Result<(Hold, u64), String> {
        let word = Arc::new(Word::open(of)?);
        word.write(AHEAD)?;
        let is_over = Arc::new(AtomicBool::new(false));
        let (ends, written) = (is_over.clone(), word.clone());
        let renewing = std::thread::spawn(move || {
            while !ends.load(Ordering::Relaxed) && written.write(AHEAD).is_ok() {
                std::thread::park_timeout(RENEWAL);
            }
            let _ = written.write(LAST); // or what was written ends by itself
        });
        let hold = Hold { is_over, renewing: Some(renewing) };
        let until = Instant::now() + ANSWER;
        loop {
            match header_now(&word.source) {
                Some(header) if header.held_until > 0 => return Ok((hold, header.last_write)),
                _ if Instant::now() > until => return Err("it does not answer".to_owned()),
                _ => std::thread::sleep(Duration::from_millis(20)),
            }
        }
    }
}

/// The word in the recording that is the command's to write.
struct Word {
    source: FileSource,
    file: File,
    shown: String,
}

impl Word {
    /// Only in a recording that nobody but this user could have put there.
    fn open(of: &Living) -> Result<Word, String> {
        let shown = of.path.display().to_string();
        let folder = of.path.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."));
        if let Some(why) = recordings::distrust(folder) {
            return Err(format!("{why}: nothing is written into recordings there"));
        }
        let source = of.open().map_err(|e| e.to_string())?;
        let failed = |e: std::io::Error| format!("cannot be asked for it: {shown}: {e}");
        let file = process::open_to_write(&of.path).map_err(failed)?;
        let meta = file.metadata().map_err(failed)?;
        if !meta.is_file() || meta.uid() != process::user_id() || !source.is(&meta) {
            return Err(format!("{shown} is no recording of yours"));
        }
        Ok(Word { source, file, shown })
    }

    /// Counted from when the header was last written: the process's clock may be another than ours
    /// (a container).
    fn write(&self, ahead: u64) -> Result<(), String> {
        let header = header_now(&self.source).ok_or_else(|| format!("{} cannot be read", self.shown))?;
        let until = header.last_write.max(header.start_monotonic).saturating_add(ahead);
        let written = self.file.write_all_at(&until.to_le_bytes(), HOLD_AT as u64);
        written.map_err(|e| format!("cannot be asked for it: {}: {e}", self.shown))
    }
}
