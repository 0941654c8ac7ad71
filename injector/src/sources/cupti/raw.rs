// SPDX-License-Identifier: Apache-2.0
// WARM
//! Test switch GAPPROBE_TEST_RAW: writes raw CUPTI records as they arrive, for replay by the
//! simulated driver (`tests/sim/src/replay.rs` documents the file: header, then chunks of buffers
//! and of the names they point to).

use std::collections::HashSet;
use std::fs::File;
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

/// The open file.
pub(crate) struct RawFile {
    file: File,
    named: HashSet<u64>,
}

impl RawFile {
    /// Creates the file and writes the header; `None` where it cannot be created.
    pub(crate) fn create(path: &Path, cupti_version: u32, soname: &str, now: u64) -> Option<RawFile> {
        let mut file = File::options().write(true).create_new(true).mode(0o600).open(path).ok()?;
        let mut name = [0u8; 32];
        for (to, from) in name.iter_mut().zip(soname.bytes()) {
            *to = from;
        }
        let mut header = Vec::with_capacity(64);
        header.extend_from_slice(b"GPRAWREC");
        header.extend_from_slice(&1u32.to_le_bytes());
        header.extend_from_slice(&cupti_version.to_le_bytes());
        header.extend_from_slice(&name);
        header.extend_from_slice(&now.to_le_bytes());
        file.write_all(&header).ok()?;
        Some(RawFile { file, named: HashSet::new() })
    }

    fn chunk(&mut self, kind: u32, now: u64, payload: &[u8]) {
        let mut head = Vec::with_capacity(16 + payload.len());
        head.extend_from_slice(&kind.to_le_bytes());
        head.extend_from_slice(&(payload.len() as u32).to_le_bytes());
        head.extend_from_slice(&now.to_le_bytes());
        head.extend_from_slice(payload);
        let _ = self.file.write_all(&head); // a test file: its reader notices a cut
    }

    /// One activity buffer as it came back.
    pub(crate) fn buffer(&mut self, now: u64, bytes: &[u8]) {
        self.chunk(1, now, bytes);
    }

    /// The string behind a name pointer, once each.
    pub(crate) fn name(&mut self, now: u64, pointer: u64, text: &[u8]) {
        if self.named.insert(pointer) {
            let mut payload = pointer.to_le_bytes().to_vec();
            payload.extend_from_slice(text);
            payload.push(0);
            self.chunk(2, now, &payload);
        }
    }
}
