// SPDX-License-Identifier: Apache-2.0
//! Purpose: inside the analyzer's crates, too, whoever uses whom stands above it: no circle between
//! rooms (modules right under a crate's root), no arrow back up. Which crate depends on which:
//! `dependencies.rs`. With `--success-output final` nextest prints the arrows.

use std::collections::BTreeSet;

use gapprobe_scenarios::built::root;
use gapprobe_scenarios::uses::Crate;

/// Rooms of a crate, from the top: each may use those behind it.
const FLOORS: [(&str, &[&str]); 4] = [
    (
        "spool",
        &["retention", "leftovers", "socket_probe", "fresh", "writer_lock", "liveness", "procfs", "elf"],
    ),
    (
        "verdict",
        &[
            "output", "analyze", "causes", "analysis", "replay", "load", "gaps", "steps", "sites", "symbols",
            "timeline", "text", "run", "stats",
        ],
    ),
    (
        "formats",
        &[
            "sniff",
            "nsys",
            "kineto",
            "mistaken",
            "settle",
            "processes",
            "assemble",
            "uncalled",
            "python",
            "vendors",
            "gzip",
            "map",
        ],
    ),
    (
        "cli",
        &[
            "verbs",
            "lost",
            "live",
            "html",
            "overview",
            "fleet",
            "export",
            "compare",
            "tables",
            "phases",
            "kernel_class",
            "terminal_width",
        ],
    ),
];

#[test]
fn no_room_uses_one_above_it() {
    let mut wrong = Vec::new();
    for (name, floors) in FLOORS {
        let found = Crate::read(&root().join("analyzer").join(name).join("src"), &[name]);
        let known: BTreeSet<&str> = floors.iter().copied().collect();
        assert_eq!(found.rooms(), known, "{name}: a new room: say here whom it may use");
        let floor = |room: &str| floors.iter().position(|r| *r == room);
        let arrows = found.arrows();
        assert!(arrows.len() + 1 >= floors.len() / 2, "{name}: few arrows are seen: {:?}", arrows.keys());
        for ((from, to), taken) in &arrows {
            println!("{name}: {from} -> {to}");
            if floor(from) >= floor(to) {
                wrong.push(format!(
                    "{name}: {from} uses {to}, which stands above it:\n  {}",
                    taken.join("\n  ")
                ));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// What is read: a crate written for it, with every way in which one module names another.
#[test]
fn every_way_to_name_another_module_is_an_arrow() {
    let folder = std::env::temp_dir().join(format!("gapprobe-rooms-{}", std::process::id()));
    let write = |name: &str, text: &str| {
        let path = folder.join(name);
        std::fs::create_dir_all(path.parent().expect("a folder")).expect("made");
        std::fs::write(path, text).expect("written");
    };
    write(
        "lib.rs",
        "mod low; mod used; mod named; mod mac; mod root; mod up; mod hidden; pub use low::deep::Thing;",
    );
    write("low/mod.rs", "pub mod deep; pub use deep::Thing as Other;");
    write("low/deep.rs", "pub struct Thing;");
    write("used.rs", "use crate::low::deep::{self, Thing};");
    write("named.rs", "fn f() -> crate::low::Other { todo!() }");
    write("mac.rs", "fn f() { println!(\"{:?}\", crate::low::deep::Thing) }");
    write("root.rs", "use crate::Thing;");
    write("up/mod.rs", "mod inner;");
    write("up/inner.rs", "fn f(_: super::super::low::Other) {}");
    write("hidden.rs", "#[cfg(test)] mod tests { use crate::low::Other; }\n// crate::low::Other\n");
    let found = Crate::read(&folder, &[]);
    let arrows: Vec<String> = found.arrows().into_values().flatten().collect();
    std::fs::remove_dir_all(&folder).expect("removed");
    let wanted = [
        "mac -> low/deep: Thing",
        "named -> low/deep: Thing",
        "root -> low/deep: Thing",
        "up/inner -> low/deep: Thing",
        "used -> low/deep: (module), Thing",
    ];
    assert_eq!(arrows, wanted);
}
