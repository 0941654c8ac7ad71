// SPDX-License-Identifier: Apache-2.0
//! A disk that is soon full.

use std::path::PathBuf;
use std::process::Command;

/// A tmpfs of a few KB; it goes with this value.
pub struct SmallDisk(pub PathBuf);

impl SmallDisk {
    /// `None` where this user may not mount one.
    pub fn mount(at: PathBuf, bytes: u32) -> Option<SmallDisk> {
        std::fs::create_dir_all(&at).ok()?;
        let mounted = Command::new("mount")
            .args(["-t", "tmpfs", "-o", &format!("size={bytes}"), "tmpfs"])
            .arg(&at)
            .output();
        mounted.is_ok_and(|o| o.status.success()).then_some(SmallDisk(at))
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(&self.0).status(); // else it stays, in memory
        let _ = std::fs::remove_dir(&self.0);
    }
}
