// SPDX-License-Identifier: Apache-2.0
//! Purpose: a child forked after CUDA was used (a DataLoader worker) writes nothing, prints nothing
//! and ends; one that executes another program, or is started afresh (spawn), is a process of its
//! own.

use std::time::Duration;

use gapprobe_scenarios::built::root;
use gapprobe_scenarios::Victim;

#[test]
fn children_forked_after_cuda_was_used_are_silent() {
    for way in ["exit", "_exit", "exec"] {
        let victim = || Victim::sim("13.0", &["fork_after", "8", way]);
        let (alone, with) = (victim().alone().run(), victim().run());
        assert_eq!((with.ending(), &with.stdout), (0, &alone.stdout), "{way}: {}", with.stderr);
        assert_eq!(with.lines().len(), 1, "{way}: the parent's line only: {}", with.stderr);
        assert!(with.others().is_empty());
        assert_eq!(with.recordings().len(), 1, "{way}: the parent's recording only");
        let names = with.left();
        let of_parent =
            |n: &std::path::PathBuf| n.to_string_lossy().contains(&format!("-{}-", with.truth().pid));
        assert!(names.len() == 2 && names.iter().all(of_parent), "{way}: {names:?}");
        assert_eq!(with.recorded().kernels().len() as u64, with.launched(), "{way}: the parent goes on");
        assert!(with.wall < alone.wall + Duration::from_secs(2), "{way}");
    }
}

const LOADER: &str = r#"
import multiprocessing, os, sys
sys.path.insert(0, sys.argv[1])

def item(n):
    return sum(range(n % 1000))

if __name__ == "__main__":
    import train
    device = train.Device()
    kernel = device.kernel("step", 20)
    for _ in range(50): device.launch(kernel)
    device.synchronize()
    with multiprocessing.get_context(sys.argv[2]).Pool(3) as pool:
        total = 0
        for part in pool.imap(item, range(300), 10):
            total += part
            device.launch(kernel)
        pool.close()
        pool.join()
    device.synchronize()
    print("total", total)
"#;

#[test]
fn data_loader_workers_by_fork_and_by_spawn() {
    let victims = root().join("tests/victims");
    for method in ["fork", "spawn", "forkserver"] {
        let victim = || {
            let script = gapprobe_scenarios::built::built().scratch.join("loader.py");
            std::fs::write(&script, LOADER).expect("script");
            let script = script.to_string_lossy().into_owned();
            Victim::of("python3", &[&script, &victims.to_string_lossy(), method], "13.0")
        };
        let (alone, with) = (victim().alone().run(), victim().run());
        assert_eq!(alone.ending(), 0, "{method}: {}", alone.stderr);
        assert_eq!((with.ending(), &with.stdout), (0, &alone.stdout), "{method}: {}", with.stderr);
        assert_eq!(
            (with.lines().len(), with.others().len()),
            (1, alone.others().len()),
            "{method}: {}",
            with.stderr
        );
        assert_eq!((with.recordings().len(), with.left().len()), (1, 2), "{method}: {:?}", with.left());
        assert_eq!(with.recorded().kernels().len(), 350, "{method}");
        assert!(
            with.wall < alone.wall + Duration::from_secs(3),
            "{method}: {:?} {:?}",
            alone.wall,
            with.wall
        );
    }
}

#[test]
fn a_program_that_replaces_itself_is_recorded_as_the_new_one() {
    let program = gapprobe_scenarios::built::built().sim.join("13.0/loop");
    let script = format!("exec {} 5 10 10", program.display());
    let run = Victim::of("/bin/bash", &["-c", &script], "13.0").run();
    assert_eq!((run.ending(), run.launched()), (0, 50));
    assert_eq!(run.recorded().kernels().len(), 50);
    let script = format!("{0} 5 10 10; {0} 6 10 10", program.display());
    let run = Victim::of("/bin/bash", &["-c", &script], "13.0").run();
    assert_eq!((run.recordings().len(), run.left().len(), run.lines().len()), (2, 4, 2), "a process each");
}
