// SPDX-License-Identifier: Apache-2.0
//! Purpose: inside the crates, too, whoever uses whom stands above it: no circle between rooms
//! (modules right under a crate's root, or under `sources`), no arrow back up. No static is reached
//! from another room. Which crate depends on which: `dependencies.rs`. With `--success-output
//! final` nextest prints the arrows.

use std::collections::BTreeSet;

use gapprobe_scenarios::built::root;
use gapprobe_scenarios::uses::Crate;

/// Rooms of a crate, or of a module of it, from the top: each may use those behind it.
const FLOORS: [(&str, &[&str]); 6] = [
    (
        "injector",
        &[
            "boot",
            "shutdown",
            "flight",
            "collector",
            "sampler",
            "duty_cycle",
            "sources",
            "hooks",
            "recording",
            "store",
            "platform",
            "ring",
        ],
    ),
    (
        "injector sources",
        &[
            "torch",
            "cupti",
            "marks",
            "callers",
            "python",
            "captured_launches",
            "launch",
            "hostpool",
            "memo",
            "seen",
            "above",
        ],
    ),
    ("analyzer/spool", &["retention", "leftovers", "fresh", "writer_lock", "liveness", "procfs", "elf"]),
    (
        "analyzer/verdict",
        &[
            "output", "analyze", "causes", "analysis", "replay", "load", "gaps", "steps", "sites", "symbols",
            "timeline", "text", "run", "stats",
        ],
    ),
    (
        "analyzer/formats",
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
        "analyzer/cli",
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
            "roofline",
            "kernel_class",
            "terminal_width",
        ],
    ),
];

#[test]
fn no_room_uses_one_above_it() {
    let mut wrong = Vec::new();
    for (name, floors) in FLOORS {
        let (folder, inside) = name.split_once(' ').unwrap_or((name, ""));
        let own = folder.rsplit('/').next().unwrap_or(folder);
        let found = Crate::read(&root().join(folder).join("src"), &[own]);
        let known: BTreeSet<&str> = floors.iter().copied().collect();
        assert_eq!(found.rooms(inside), known, "{name}: a new room: say here whom it may use");
        let floor = |room: &str| floors.iter().position(|r| *r == room);
        let arrows = found.arrows(inside);
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

/// A `static` that others may name is a variable of the whole program. One that a room needs of
/// another is asked for by a function.
#[test]
fn no_static_is_reached_from_another_room() {
    let mut files = vec![root().join("injector/src")];
    let mut statics = 0;
    while let Some(path) = files.pop() {
        if path.is_dir() {
            files.extend(std::fs::read_dir(&path).expect("a folder").flatten().map(|e| e.path()));
            continue;
        }
        for (at, line) in std::fs::read_to_string(&path).expect("a source").lines().enumerate() {
            let line = line.trim_start();
            let public = line.starts_with("pub") && line.contains(" static ");
            statics += usize::from(public || line.starts_with("static "));
            let is_open = public && !line.starts_with("pub(super) ");
            assert!(!is_open, "{}:{}: {line}", path.display(), at + 1);
        }
    }
    assert!(statics > 50, "only {statics} found: has the look of the source changed?");
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
    let arrows: Vec<String> = found.arrows("").into_values().flatten().collect();
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
