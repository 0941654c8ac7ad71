// SPDX-License-Identifier: Apache-2.0
//! Purpose: a kernel's line, module and operator, in the forward pass and in the backward one. A
//! model of a real PyTorch for the CPU, whose matrix products launch kernels on the simulated
//! driver (victims/modules.py, victims/libgemm.c), says itself which module each is of, by
//! `named_modules()`; every kernel of the recording is held against that. Both passes have the line
//! of the forward, but where the program has written the backward itself. A step that was captured
//! in a CUDA graph is told in the same way by each kernel of the graph, when the recording does not
//! go back to the capture.

use std::collections::BTreeMap;

use gapprobe_scenarios::built::{built, root};
use gapprobe_scenarios::{pythons, Victim};
use trace::call::Class;
use trace::{Kind, Loss};
use verdict::run::autograd::type_name;
use verdict::sites::Sites;
use verdict::Run;

const STEPS: usize = 60;
/// Steps until it is known which frames call modules: the drain thread's first round after the
/// first of them, and of a machine that has much else to do.
const FIRST: usize = 20;
/// How often the graph is played: as many times as each of the four models has steps.
const PLAYED: usize = STEPS / 4;
/// Events at the end of the recording that are loaded, more by as many until the capture is among
/// them: an end that takes long has samples in it, and then fewer of the graph's kernels.
const NEWEST: u64 = 100;
const MOST: u64 = 40;
const TRIES: usize = 4;
/// The kernel of the checkpoint's layer.
const AGAIN: &str = "gemm_8_20_60";
const SOURCE: &str = "tests/scenarios/victims/modules.py";

/// What a kernel is of: module and class ("-": of none), line.
type Whose = (String, String, u32);

/// The number of the line that ends in this mark.
fn line(mark: &str) -> u32 {
    let text = std::fs::read_to_string(root().join(SOURCE)).expect("source");
    let found = text.lines().zip(1..).find(|(line, _)| line.ends_with(&format!("  # {mark}")));
    found.unwrap_or_else(|| panic!("no line {mark}")).1
}

/// Kernels of the simulated GPU, and whose they are.
struct Ran {
    truth: serde_json::Value,
    /// Modules and lines by kernel, in the forward and in the backward pass.
    whose: BTreeMap<(String, bool), BTreeMap<Whose, usize>>,
    operators: BTreeMap<(String, bool), BTreeMap<Option<String>, usize>>,
}

/// Runs the model; of the kernels of graphs, as they are in the newest part of a recording, or of
/// the others.
fn run(more: &[&str], of_graphs: bool) -> Option<Ran> {
    let python = pythons::with_torch("whose a kernel is")?;
    let library = built().victims.join("13.0/libgemm.so");
    let (source, steps) = (root().join(SOURCE), STEPS.to_string());
    let words = [source.to_str().expect("a path"), library.to_str().expect("a path"), &steps];
    let words = [&words, more].concat();
    let once = || {
        let run = Victim::of(python, &words, "13.0").whole().run();
        assert_eq!(run.ending(), 0, "{}", run.stderr);
        run
    };
    // (a machine that lets the drain thread wait for long loses stacks, and says so)
    let run = (0..TRIES).map(|_| once()).find(|run| run.recorded().loss(Loss::SiteDropped) == 0);
    let run = run.unwrap_or_else(|| panic!("stacks were dropped in each of {TRIES} runs"));
    let truth = serde_json::from_str(run.stdout.lines().last().expect("the truth")).expect("JSON");
    for loss in [Loss::FrameUnreadable, Loss::HostRingFull] {
        assert_eq!(run.recorded().loss(loss), 0, "{loss:?}");
    }
    let bytes = std::fs::read(&run.recordings()[0]).expect("a recording");
    let load = |most| verdict::load_newest(&*bytes, most).expect("a recording");
    let has_launches =
        |run: &Run| run.threads.iter().flat_map(|t| &t.calls).any(|c| c.class == Some(Class::Launch));
    let mut loaded = match of_graphs {
        // the capture is gone
        true => (1..=MOST).map(|n| load(n * NEWEST)).take_while(|l| !has_launches(l)).last().expect("plays"),
        false => load(u64::MAX),
    };
    verdict::symbols::name(&mut loaded, None);
    let mut ran = Ran { truth, whose: BTreeMap::new(), operators: BTreeMap::new() };
    let mut sites = Sites::new(&loaded);
    let ops = loaded.devices.iter().flat_map(|d| &d.streams).flat_map(|s| &s.ops);
    for op in ops.filter(|op| op.kind == Kind::Kernel && op.is_graph_node() == of_graphs) {
        let origin = loaded.origin(op).expect("its launch");
        let work = origin.work;
        if let Some(node) = work.node {
            let of_type = loaded.definitions.string(node).map(type_name);
            assert!(of_type.is_some_and(|t| t.contains("Backward") || t == "PyNode"), "{of_type:?}");
        }
        let string = |id: u32| loaded.definitions.string(id).unwrap_or("").to_owned();
        let module = loaded.definitions.in_module(work.stack);
        let (path, class) =
            module.map_or_else(|| ("-".into(), "-".into()), |m| (string(m.path), string(m.class)));
        let site = sites.of(work.stack).and_then(|site| sites.get(site));
        let whose = (path, class, site.map_or(0, |s| s.line));
        let key = (loaded.definitions.kernel_name(op.a).to_owned(), work.node.is_some());
        let operator = loaded.operator(&origin, op).map(|o| o.name.to_owned());
        *ran.operators.entry(key.clone()).or_default().entry(operator).or_default() += 1;
        *ran.whose.entry(key).or_default().entry(whose).or_default() += 1;
    }
    Some(ran)
}

impl Ran {
    /// By kernel: whose it is in the forward and in the backward pass.
    fn expected(&self) -> BTreeMap<&String, [Whose; 2]> {
        let text = |v: &serde_json::Value| v.as_str().unwrap_or("-").to_owned();
        let kernels = self.truth.as_object().expect("by kernel").iter();
        let whose = kernels.map(|(kernel, t)| {
            let of = |pass: usize| (text(&t[0]), text(&t[1]), line(t[pass].as_str().expect("a mark")));
            (kernel, [of(2), of(3)])
        });
        whose.collect()
    }

    /// Of those whose operator is known it is the right one; how many at most are not known.
    fn assert_operators(&self, most_unknown: usize) {
        for ((kernel, is_backward), of) in &self.operators {
            let forward = self.truth[kernel][4].as_str().expect("an operator");
            // both products of a backward pass, and in it a forward that is computed again
            let right = if *is_backward { "aten::mm" } else { forward };
            let is_right = |o: &&str| *o == right || *is_backward && kernel == AGAIN && *o == forward;
            let known: usize =
                of.iter().filter(|(o, _)| o.as_deref().is_some_and(|o| is_right(&o))).map(|o| o.1).sum();
            let all: usize = of.values().sum();
            let unknown = of.get(&None).copied().unwrap_or(0);
            assert_eq!(known + unknown, all, "{kernel}, backward {is_backward}: {of:?}");
            assert!(unknown <= most_unknown, "{kernel}, backward {is_backward}: {of:?}");
        }
    }
}

#[test]
fn each_kernel_is_of_its_module_and_line_in_both_passes() {
    let Some(ran) = run(&[], false) else { return };
    let (expected, seen) = (ran.expected(), &ran.whose);
    for (kernel, passes) in &expected {
        for (is_backward, whose) in [false, true].into_iter().zip(passes) {
            let of = seen.get(&((*kernel).clone(), is_backward));
            let of = of.unwrap_or_else(|| panic!("{kernel}, backward {is_backward}: {seen:#?}"));
            let right = of.get(whose).copied().unwrap_or(0);
            assert!(right >= STEPS - FIRST, "{kernel}, backward {is_backward}: {seen:#?}");
            // of the first steps the line alone is known, or of a node made before them nothing
            let (path, line) = (&whose.0, whose.2);
            let is_of_the_first = |w: &Whose| w.0 == "-" && path != "-" && [line, 0].contains(&w.2);
            // (computed again before its model was seen to call it, it stands alone)
            let is_alone = |w: &Whose| {
                kernel.as_str() == AGAIN && w == &(String::new(), whose.1.clone(), line) && of[w] <= FIRST / 2
            };
            let others = of.keys().filter(|w| *w != whose && !is_of_the_first(w) && !is_alone(w));
            assert_eq!(
                others.collect::<Vec<_>>(),
                Vec::<&Whose>::new(),
                "{kernel}, backward {is_backward} {of:?}"
            );
        }
    }
    assert_eq!(seen.len(), 2 * expected.len(), "no other kernels: {seen:#?}");
    // (of the engine's nodes that began before the window nothing is known)
    ran.assert_operators(2);
}

#[test]
fn each_kernel_of_a_graph_is_of_the_line_that_was_captured() {
    let Some(ran) = run(&["graph"], true) else { return };
    let (expected, seen) = (ran.expected(), &ran.whose);
    for (kernel, passes) in &expected {
        for (is_backward, whose) in [false, true].into_iter().zip(passes) {
            // (a backward pass has two products, or one, and a forward that is computed again)
            let of = seen.get(&((*kernel).clone(), is_backward));
            let of = of.unwrap_or_else(|| panic!("{kernel}, backward {is_backward}: {seen:#?}"));
            assert_eq!(of.keys().collect::<Vec<_>>(), [whose], "{kernel}, backward {is_backward}");
            assert!(of[whose] >= PLAYED / 3, "{kernel}, backward {is_backward}: {of:?}");
        }
    }
    assert_eq!(seen.len(), 2 * expected.len(), "no other kernels: {seen:#?}");
    ran.assert_operators(0);
}
