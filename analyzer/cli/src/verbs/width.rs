// SPDX-License-Identifier: Apache-2.0
//! How wide text for people may be: as wide as the terminal that it goes to. What goes elsewhere is
//! not shortened.

use std::io::{self, IsTerminal};

use crate::verbs::process;

/// The option of verbs that print tables.
#[derive(Clone, Copy, Debug, Default, clap::Args)]
pub(crate) struct Width {
    /// Lines of at most N columns, longer names shortened in the middle; 0: everything whole
    /// [default: the terminal's width; whole where the output goes elsewhere]
    #[arg(long, value_name = "N")]
    width: Option<usize>,
}

impl Width {
    /// What the user says.
    pub(crate) fn told(self) -> Option<usize> {
        self.width.map(|n| if n == 0 { usize::MAX } else { n })
    }

    /// Columns; `None` where nobody looks on and nobody said.
    pub(crate) fn most(self) -> Option<usize> {
        match self.told() {
            Some(n) => Some(n),
            None if !io::stdout().is_terminal() => None,
            None => {
                let told = std::env::var("COLUMNS").ok().and_then(|c| c.trim().parse().ok());
                told.filter(|&c: &usize| c > 0).or_else(process::terminal_columns)
            }
        }
    }
}
