// SPDX-License-Identifier: Apache-2.0
//! PyTorch's operators on the way from a line to what it put on the GPU: each is called through a
//! function of its own, `at::_ops::NAME::call` of libtorch_cpu, which C++ and the bindings of
//! Python have in common. The outermost one on the way is the line's. Where an operator is called
//! by its schema (`torch.ops`, TorchScript) that function is not there, and what is called further
//! in is not the line's: then there is none. torch.compile has kernels of its own making, which are
//! no operator's, and calls operators by their schema, too: what they are of its code says
//! ([`super::inductor`]).

use std::collections::{BTreeMap, HashMap, HashSet};
use std::path::Path;

use trace::define::{CallerInfo, MAX_FRAMES};
use trace::Definitions;

use super::inductor::Files;
use super::overloads::operator;
use super::{of_file, Limit};
use crate::run::operators::{Operator, Operators};

/// Addresses looked up at most.
const MOST: usize = 65_536;
/// In names of functions that call operators by their schema.
const BY_SCHEMA: [&str; 3] = ["callBoxed", "invokeOperatorFromPython", "InterpreterState"];

/// What a function on the way is.
#[derive(Clone, PartialEq, Eq, Debug)]
enum Step {
    Operator(String),
    BySchema,
}

impl Step {
    /// By the function's mangled name.
    fn of(function: &str) -> Option<Step> {
        if BY_SCHEMA.iter().any(|name| function.contains(name)) {
            return Some(Step::BySchema);
        }
        let rest = function.strip_prefix("_ZN2at4_ops")?;
        let digits = rest.bytes().take_while(u8::is_ascii_digit).count();
        let (length, rest) = rest.split_at(digits);
        let (name, rest) = rest.split_at_checked(length.parse().ok()?)?;
        rest.starts_with("4callE").then(|| Step::Operator(operator(name)))
    }
}

/// The operators of a recording, as far as the files can be read within `limit`.
pub(super) fn read(definitions: &Definitions, started: u64, limit: Limit) -> Operators {
    if definitions.natives().is_empty() {
        return Operators::default();
    }
    let steps = steps(definitions, started, limit);
    let (mut found, mut files) = (Operators::default(), Files::new(limit.until));
    // a stack has several ids where its module came to be known later
    let mut first: HashMap<&[u32], u32> = HashMap::new();
    for (id, frames) in definitions.stacks() {
        let other = *first.entry(frames).or_insert(id);
        if other != id {
            found.add_alike(id, other);
        }
    }
    for native in definitions.natives() {
        let frames = definitions.frames(native.native);
        // (of a longer one the outermost are not there)
        let is_whole = frames.len() < MAX_FRAMES;
        let outermost = frames.iter().rev().find_map(|frame| steps.get(frame)).filter(|_| is_whole);
        let mut made = files.made(definitions, native.outer);
        if let Some(Step::Operator(name)) = outermost {
            made.get_or_insert_default().operators.clone_from(name);
        }
        let operator = made.as_ref().map(|m| Operator { name: &m.operators, nodes: &m.nodes });
        let text = |id| definitions.string(id).unwrap_or("");
        let stack = found.stands_for(native.outer);
        found.add(stack, text(native.node), text(native.kernel), operator);
    }
    found
}

/// What functions of PyTorch's the callers in these stacks are, by the ids of their frames.
fn steps(definitions: &Definitions, started: u64, limit: Limit) -> HashMap<u32, Step> {
    let wanted: HashSet<u32> =
        definitions.natives().iter().flat_map(|n| definitions.frames(n.native)).copied().collect();
    let mut modules: BTreeMap<u32, Vec<(u32, &CallerInfo)>> = BTreeMap::new();
    for (frame, caller) in definitions.callers().filter(|c| wanted.contains(&c.0)).take(MOST) {
        modules.entry(caller.module).or_default().push((frame, caller));
    }
    let mut steps = HashMap::new();
    for (id, callers) in modules {
        let module = definitions.module(id).copied().unwrap_or_default();
        let path = Path::new(definitions.string(module.path).unwrap_or(""));
        let file = path.file_name().and_then(|name| name.to_str()).unwrap_or("");
        if !["libtorch_cpu.", "libtorch_python."].iter().any(|name| file.starts_with(name)) {
            continue;
        }
        let build_id = definitions.string(module.build_id).unwrap_or("");
        let calls: Vec<u64> = callers.iter().map(|c| c.1.offset.saturating_sub(1)).collect();
        let found = of_file(path, build_id, started, &calls, limit);
        steps.extend(
            callers.iter().zip(found).filter_map(|(c, symbol)| Some((c.0, Step::of(&symbol?.name)?))),
        );
    }
    steps
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_step_is_told_by_its_functions_name() {
        let of = |name| Step::of(name);
        let add = "_ZN2at4_ops10add_Tensor4callERKNS_6TensorES4_RKN3c106ScalarE";
        assert_eq!(of(add), Some(Step::Operator("aten::add".into())));
        let again = add.replace("4call", "10redispatch");
        assert_eq!(of(&again), None, "what it goes on to");
        assert_eq!(of("_ZN2at4_ops99add4callE"), None);
        assert_eq!(of("_ZNK3c1010Dispatcher9callBoxedERKNS_14OperatorHandleE"), Some(Step::BySchema));
        assert_eq!(of("_ZN2at6native3addE"), None);
    }
}
