// SPDX-License-Identifier: Apache-2.0
//! From where the program came to the line that the verdict names: of all stacks that end there,
//! the one that costs most.

use std::collections::HashMap;

use trace::FrameInfo;

use verdict::analysis::idle_stacks::{frame_name, idle_stacks};
use verdict::analysis::Analysis;
use verdict::run::Run;
use verdict::sites::{is_users, Sites};

/// The frames, innermost first; none where the verdict has no line.
pub fn stack(run: &Run, analysis: &Analysis) -> Vec<String> {
    frames(run, analysis).into_iter().map(|f| frame_name(run, f)).collect()
}

fn frames<'a>(run: &'a Run, analysis: &Analysis) -> Vec<&'a FrameInfo> {
    let Some(site) = &analysis.verdict.site else { return Vec::new() };
    let mut sites = Sites::new(run);
    let mut is_there = |stack: u32| {
        let found = sites.of(stack).and_then(|s| sites.get(s));
        found.is_some_and(|s| (&s.path, s.line, &s.function) == (&site.path, site.line, &site.function))
    };
    let mut cost: HashMap<u32, u64> = HashMap::new();
    if let Some(found) = analysis.worst.and_then(|w| analysis.devices.get(w)) {
        idle_stacks(run, found, &analysis.counts, |idle| {
            if idle.stack != 0 && is_there(idle.stack) {
                *cost.entry(idle.stack).or_default() += idle.ns;
            }
        });
    }
    // what costs no idle time of its own has the call that stands for it
    let call = run.call(analysis.verdict.call).map_or(0, |(_, c)| c.site);
    let most = cost.into_iter().max_by_key(|&(stack, ns)| (ns, u32::MAX - stack)).map(|c| c.0);
    let stack = most.or_else(|| is_there(call).then_some(call)).unwrap_or(0);
    run.definitions.stack(stack).collect()
}

/// Callers shown.
const CALLERS: usize = 2;

/// Who calls the function that the verdict names, innermost first: where that is a helper of one
/// line (`Device.synchronize`), they say which of its calls is meant. The program's own frames,
/// where it has any further out, and not its outermost level.
pub(super) fn callers(run: &Run, analysis: &Analysis) -> Vec<String> {
    let Some(site) = &analysis.verdict.site else { return Vec::new() };
    let file = site.path.rsplit('/').next().unwrap_or_default();
    let here = format!("({file}:{})", site.line);
    let named = frames(run, analysis).into_iter().map(|f| (f, frame_name(run, f)));
    let outer = named.skip_while(|f| !f.1.ends_with(&here)).skip(1);
    let outer: Vec<(&FrameInfo, String)> = outer.take_while(|f| !f.1.starts_with("<module>")).collect();
    let is_own = |f: &&(&FrameInfo, String)| is_users(run.definitions.string(f.0.file).unwrap_or_default());
    let own: Vec<String> = outer.iter().filter(is_own).take(CALLERS).map(|f| f.1.clone()).collect();
    match own.is_empty() {
        true => outer.into_iter().take(CALLERS).map(|f| f.1).collect(),
        false => own,
    }
}
