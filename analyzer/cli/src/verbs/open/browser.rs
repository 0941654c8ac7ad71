// SPDX-License-Identifier: Apache-2.0
//! The user's browser: whether there is one on this side, and starting it.

use std::env;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// What starts a browser ends within this time where it cannot.
const SETTLED: Duration = Duration::from_secs(3);

/// Is the user at another machine? Who has set BROWSER (editors that are remote do) can be reached.
pub(super) fn is_remote() -> bool {
    is_set("SSH_CONNECTION") && !["DISPLAY", "WAYLAND_DISPLAY", "BROWSER"].into_iter().any(is_set)
}

fn is_set(name: &str) -> bool {
    env::var_os(name).is_some_and(|value| !value.is_empty())
}

/// `user@host`, as far as this side knows it.
pub(super) fn login() -> String {
    let user = env::var("USER").or_else(|_| env::var("LOGNAME")).unwrap_or_else(|_| "USER".to_owned());
    let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    match host.trim_end() {
        "" => format!("{user}@HOST"),
        host => format!("{user}@{host}"),
    }
}

/// A program that opens a page; it may end at once, or when the page is closed.
pub(super) struct Browser {
    name: String,
    child: Child,
}

impl Browser {
    /// By `BROWSER` (the first of its list; `%s` stands for the URL), else by xdg-open.
    ///
    /// # Errors
    /// Which program is not there, in a few words.
    pub(super) fn start(url: &str) -> Result<Browser, String> {
        let told = env::var("BROWSER").ok().filter(|b| !b.trim().is_empty());
        let first = told.as_deref().and_then(|b| b.split(':').next()).unwrap_or("xdg-open");
        let mut words: Vec<String> = first.split_whitespace().map(|word| word.replace("%s", url)).collect();
        if !first.contains("%s") {
            words.push(url.to_owned());
        }
        let (name, arguments) = words.split_first().ok_or("BROWSER is empty")?;
        let mut command = Command::new(name);
        command.args(arguments).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        // a browser that stays is not to end with Ctrl-C
        let child = command.process_group(0).spawn().map_err(|e| format!("{name}: {e}"))?;
        Ok(Browser { name: name.clone(), child })
    }

    /// What was started.
    pub(super) fn name(&self) -> &str {
        &self.name
    }

    /// It has ended, and says that it could open nothing.
    pub(super) fn failed(&mut self) -> Option<String> {
        let status = self.child.try_wait().ok().flatten().filter(|status| !status.success())?;
        Some(format!("{} ended with {status}", self.name))
    }

    /// The same, after the time in which it would have.
    pub(super) fn settled(&mut self) -> Option<String> {
        let begin = Instant::now();
        while begin.elapsed() < SETTLED {
            match self.child.try_wait() {
                Ok(None) => std::thread::sleep(Duration::from_millis(20)),
                _ => return self.failed(),
            }
        }
        None
    }
}
