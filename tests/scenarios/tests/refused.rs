// SPDX-License-Identifier: Apache-2.0
//! Purpose: where memory is refused (`ulimit -v`, a program that takes all there is and copes)
//! gapprobe ends and the program does not. One line says so, and what was recorded until then is
//! recovered.

use std::process::Command;

use gapprobe_scenarios::built::built;
use gapprobe_scenarios::Victim;

#[test]
fn a_program_that_takes_all_memory_goes_on_without_us() {
    for (argument, status, said) in [("go", 0, "launched 800\n"), ("exit", 3, "")] {
        // one arena: ours has no memory of its own left to live on
        let victim = Victim::ours("13.0", &["adverse", "memory", argument]).env("MALLOC_ARENA_MAX", "1");
        let run = victim.run();
        assert_eq!((run.ending(), run.stdout.as_str()), (status, said), "{argument}: {}", run.stderr);
        let lines = run.lines();
        assert!(lines.len() == 1 && run.others().is_empty(), "{argument}: {}", run.stderr);
        assert!(lines[0].contains("memory was refused"), "{lines:?}");
        let left = run.left_recordings();
        assert_eq!(left.len(), 1, "it is there to be recovered");
        assert!(lines[0].contains(&*left[0].to_string_lossy()), "and named: {lines:?}");
        let recorded = run.recorded();
        assert_eq!((recorded.kernels().len(), recorded.problems.damaged()), (400, 0), "{argument}");
        let mut recover = Command::new(&built().command);
        let output = recover.arg("recover").arg(&left[0]).arg("--dir").arg(&run.folder).output();
        let output = output.expect("gapprobe");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    }
}
