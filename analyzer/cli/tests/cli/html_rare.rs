// SPDX-License-Identifier: Apache-2.0
//! `report`: which step is drawn where the cause comes now and then.

use cli::html::{figures, Subject};

use crate::html_report::{number, read, repository};

/// Nine pauses in 249 steps: the step nearest to the median has none of them, and shows nothing of
/// what the line speaks of.
#[test]
fn where_the_cause_comes_now_and_then_a_step_that_has_it_is_drawn() {
    for (program, bucket, least_ns) in
        [("host_stall_50", "host", 100_000_000), ("loader_slow_reads", "input", 10_000_000)]
    {
        let file = repository(&format!("../../../tests/gpu/recordings/{program}.slow.gprec.gz"));
        let (input, analysis) = read(&file);
        let f = figures(&Subject { name: "a", input: &input, analysis: &analysis }, None);
        let d = &f["runs"][0]["device"];
        let (t, legend) = (&d["timeline"], f["buckets"].as_array().unwrap());
        let place = legend.iter().position(|b| b["key"] == bucket).unwrap();
        assert_eq!(number(&t["rare"]["bucket"]) as usize, place, "{program}");
        let shown = t["idle"].as_array().unwrap().iter().filter(|i| number(&i[2]) as usize == place);
        let shown: u64 = shown.map(|i| number(&i[1])).sum();
        assert!(shown >= least_ns, "{program}: {shown} ns of it in step {}", t["step"]);
        let (rare, steady) = (number(&t["rare"]["steps"]) as usize, analysis.steps.steady().len());
        assert!(rare > 0 && rare * 2 < steady, "{program}: {rare} of {steady}");
    }
}
