// SPDX-License-Identifier: Apache-2.0
//! Purpose: what a backward pass throws goes through us as if we were not there. A program of a
//! real PyTorch for the CPU (victims/throws.py) catches it and trains on: it ends as it does alone,
//! and the kernels of its good steps are told as ever.

use std::collections::BTreeMap;

use gapprobe_scenarios::built::{built, root};
use gapprobe_scenarios::{pythons, Victim};
use trace::Kind;
use verdict::run::autograd::type_name;
use verdict::sites::Sites;

const STEPS: usize = 100;
const SOURCE: &str = "tests/scenarios/victims/throws.py";

#[test]
fn a_backward_pass_that_throws_ends_as_it_does_alone() {
    let Some(python) = pythons::with_torch("a backward pass that throws") else { return };
    let library = built().victims.join("13.0/libgemm.so");
    let (source, steps) = (root().join(SOURCE), STEPS.to_string());
    let words = [source.to_str().expect("a path"), library.to_str().expect("a path"), &steps];
    let run = Victim::of(python, &words, "13.0").whole().run();
    assert_eq!(run.ending(), 0, "{}", run.stderr);
    assert_eq!(run.stdout, format!("caught {STEPS} KeyboardInterrupt ValueError\n"));

    let bytes = std::fs::read(&run.recordings()[0]).expect("a recording");
    let mut loaded = verdict::load(&*bytes).expect("a recording");
    verdict::symbols::name(&mut loaded, None);
    let text = std::fs::read_to_string(root().join(SOURCE)).expect("source");
    let good = text.lines().position(|l| l.ends_with("  # good")).expect("the line") as u32 + 1;
    let mut sites = Sites::new(&loaded);
    let mut found: BTreeMap<_, usize> = BTreeMap::new();
    let ops = loaded.devices.iter().flat_map(|d| &d.streams).flat_map(|s| &s.ops);
    for op in ops.filter(|op| op.kind == Kind::Kernel) {
        if loaded.definitions.kernel_name(op.a) == "gemm_7_8_10" {
            let origin = loaded.origin(op).expect("its launch");
            let node = origin.work.node.and_then(|node| loaded.definitions.string(node)).map(type_name);
            let site = sites.of(origin.work.stack).and_then(|site| sites.get(site));
            let operator = loaded.operator(&origin, op).map(|o| o.name);
            *found.entry((node, site.map(|s| s.line), operator)).or_default() += 1;
        }
    }
    // (made before our functions were in the slots)
    let early = found.remove(&(Some("MmBackward0"), None, Some("aten::mm"))).unwrap_or(0);
    assert!(early <= 2, "{early}");
    let expected = [(None, STEPS), (Some("MmBackward0"), STEPS - early)];
    let expected = expected.map(|(node, count)| ((node, Some(good), Some("aten::mm")), count));
    assert_eq!(found, BTreeMap::from(expected));
}
