// SPDX-License-Identifier: Apache-2.0
//! GP191 MIXED: whose line it names, and when one of its causes is the verdict.

use verdict::analysis::Figure;
use verdict::Analysis;

use super::verdicts::many_reasons;
use super::{run, time, verdict, Program};

/// The program stands in this line of its own from now on.
fn at(p: &mut Program, line: u32) {
    p.site = p.b.stack(&[("step", "/job/gpt/train.py", line), ("<module>", "/job/gpt/train.py", 200)]);
}

/// The causes of a set that a MIXED verdict names, in its order.
fn causes(a: &Analysis) -> Vec<&'static str> {
    match a.verdict.facts.figure("causes") {
        Some(Figure::Together(causes)) => causes.clone(),
        _ => Vec::new(),
    }
}

#[test]
fn the_line_of_a_mixed_verdict_is_that_of_its_first_cause() {
    let (_, a) = run(|p| {
        at(p, 31);
        many_reasons(p);
    });
    verdict(&a, "MIXED");
    let causes = causes(&a);
    assert!(causes.len() >= 2, "{}", a.verdict.text());
    let first = a.findings.iter().find(|f| f.cause == causes[0]).expect("the first cause");
    assert_eq!(first.site.as_ref().map(|s| s.line), Some(31), "{first:?}");
    assert_eq!((&a.verdict.site, a.verdict.call), (&first.site, first.call));
    assert!(
        a.verdict.text().ends_with(&format!("; {} at gpt/train.py:31 in step", first.cause)),
        "{}",
        a.verdict.text()
    );
}

/// Without a line there is none.
#[test]
fn a_mixed_verdict_of_causes_without_lines_has_none() {
    let (_, a) = run(many_reasons);
    verdict(&a, "MIXED");
    assert!(a.verdict.site.is_none() && !a.verdict.text().contains(" at "), "{:?}", a.verdict);
}

/// 3 ms of work in which an allocation takes so long, and a pageable copy of so many bytes.
fn two(p: &mut Program, free: u64, bytes: u64) {
    for part in 0..8 {
        for _ in 0..9 {
            p.launch(["gemm_a", "gemm_b", "gemm_c"][part % 3], 264, 40_000);
        }
    }
    p.optimizer(40_000);
    at(p, 31);
    p.free(free);
    p.launch("gemm_d", 264, 100_000);
    at(p, 44);
    p.copy(7, true, bytes, true);
    p.site = 0;
}

/// Neither wins a tenth, both do: the one that wins most of it is the verdict, with its own line
/// and promise, and the other comes next.
#[test]
fn where_one_of_a_set_wins_most_of_it_the_verdict_is_that_one() {
    let (_, a) = run(|p| two(p, 310_000, 850_000));
    verdict(&a, "ALLOC");
    let v = &a.verdict;
    assert_eq!(v.site.as_ref().map(|s| s.line), Some(31), "{v:?}");
    assert!(v.share < 0.10 && v.then.is_some_and(|t| t.0 == "COPY"), "{v:?}");
    let truth = time(|p| two(p, 0, 850_000));
    assert!(
        (v.promise.unwrap().ns() - truth).abs() <= v.promise.unwrap().error_ns() + 0.02 * v.step_ns,
        "{v:?} {truth}"
    );
}
