// SPDX-License-Identifier: Apache-2.0
//! What kind of dispatching a stack is: an optimizer's step, and how it goes over its parameters; a
//! function that is compiled; code behind a break of its graph.
//!
//! PyTorch names all three itself: `torch/optim` has a function `_single_tensor_adam`,
//! `_multi_tensor_adam` and `_fused_adam` for each optimizer; what `torch.compile` makes is called
//! by a function of `torch/_dynamo/eval_frame.py`
//! (`_TorchDynamoContext.__call__.<locals>.compile_wrapper`, `..._fn` before PyTorch 2.7; without
//! the functions around it, in Pythons before 3.11, `_fn` may be `torch._dynamo.disable`'s); and
//! TorchDynamo compiles what stands behind a graph break into a function
//! `torch_dynamo_resume_in_NAME_at_LINE`.

use trace::{FrameInfo, Language};

use super::origin::Origin;
use crate::run::Run;

/// How an optimizer goes over its parameters.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Way {
    /// One after the other, a handful of launches for each.
    OneByOne,
    /// Many in one launch (`foreach`, `fused`).
    Together,
    /// In the optimizer's step, and not in the loop over parameters.
    Unknown,
}

/// What a stack says.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct Dispatch {
    pub(crate) optimizer: Option<Way>,
    /// Inside of a function that `torch.compile` made.
    pub(crate) compiled: bool,
    /// The innermost break of a compiled graph that the stack stands behind.
    pub(crate) broken_at: Option<Break>,
}

/// Where a graph breaks.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(crate) struct Break {
    pub(crate) file: String,
    pub(crate) line: u32,
    /// As the interpreter names what is compiled behind it.
    pub(crate) resumed: String,
}

impl Dispatch {
    /// Of a stack.
    pub(crate) fn of(run: &Run, stack: u32) -> Dispatch {
        let text = |id| run.definitions.string(id).unwrap_or("");
        let python = |f: &&FrameInfo| f.language == Language::Python;
        let frames: Vec<(&str, &str)> = run
            .definitions
            .stack(stack)
            .filter(python)
            .map(|f: &FrameInfo| (text(f.file), text(f.function)))
            .collect();
        let broken_at = frames.iter().find_map(|f| {
            let line = resumed_at(f.1)?;
            Some(Break { file: f.0.to_owned(), line, resumed: f.1.to_owned() })
        });
        let compiled = broken_at.is_some() || frames.iter().any(|f| calls_compiled(f.0, f.1));
        Dispatch { optimizer: optimizer(&frames), compiled, broken_at }
    }
}

fn last(function: &str) -> &str {
    function.rsplit('.').next().unwrap_or(function)
}

/// The line of the break in the name of a function that TorchDynamo made.
fn resumed_at(function: &str) -> Option<u32> {
    let (_, at) = last(function).strip_prefix("torch_dynamo_resume_in_")?.rsplit_once("_at_")?;
    at.parse().ok()
}

/// Is this the frame that calls what `torch.compile` made?
fn calls_compiled(file: &str, function: &str) -> bool {
    file.ends_with("torch/_dynamo/eval_frame.py")
        && (function.contains("_TorchDynamoContext.") || last(function) == "compile_wrapper")
}

fn optimizer(frames: &[(&str, &str)]) -> Option<Way> {
    let of_torch =
        |file: &str| file.contains("torch/optim/") && Origin::of(file, "") == Origin::Package("torch");
    // innermost first: what stands further out is not the optimizer's
    let step = frames.iter().position(|f| of_torch(f.0) && f.1.contains("profile_hook_step"));
    let inner = frames.get(..step.unwrap_or(frames.len())).unwrap_or(&[]);
    let named = |prefix: &str| inner.iter().any(|f| of_torch(f.0) && last(f.1).starts_with(prefix));
    if named("_single_tensor_") {
        return Some(Way::OneByOne);
    }
    if named("_multi_tensor_") || named("_fused_") {
        return Some(Way::Together);
    }
    step.map(|_| Way::Unknown)
}

#[cfg(test)]
mod tests {
    use super::*;

    const OPTIM: &str = "/venv/lib/python3.11/site-packages/torch/optim";

    fn way(frames: &[(&str, &str)]) -> Option<Way> {
        let paths: Vec<String> = frames.iter().map(|f| f.0.replace('@', OPTIM)).collect();
        let frames: Vec<(&str, &str)> =
            paths.iter().map(String::as_str).zip(frames.iter().map(|f| f.1)).collect();
        optimizer(&frames)
    }

    const STEP: (&str, &str) = ("@/optimizer.py", "Optimizer.profile_hook_step.<locals>.wrapper");
    const LOOP: (&str, &str) = ("/job/train.py", "train");

    #[test]
    fn ways_of_optimizers() {
        let adam = |function| way(&[("@/adam.py", function), ("@/adam.py", "Adam.step"), STEP, LOOP]);
        assert_eq!(adam("_single_tensor_adam"), Some(Way::OneByOne));
        assert_eq!(adam("_multi_tensor_adam"), Some(Way::Together));
        assert_eq!(adam("_fused_adam"), Some(Way::Together));
        assert_eq!(adam("Adam._init_group"), Some(Way::Unknown));
    }

    #[test]
    fn what_is_no_optimizers_step() {
        assert_eq!(way(&[LOOP]), None);
        assert_eq!(way(&[("@/lr_scheduler.py", "LRScheduler.step"), LOOP]), None);
        // a program's own function of that name
        assert_eq!(way(&[("/job/optim.py", "_single_tensor_adam"), LOOP]), None);
        // a closure that the optimizer calls is below its step, whatever it does: not known
        assert_eq!(
            way(&[("/job/train.py", "closure"), ("@/lbfgs.py", "LBFGS.step"), STEP, LOOP]),
            Some(Way::Unknown)
        );
    }

    #[test]
    fn what_calls_compiled_functions() {
        let file = "/venv/lib/python3.12/site-packages/torch/_dynamo/eval_frame.py";
        for function in [
            "_TorchDynamoContext.__call__.<locals>.compile_wrapper",
            "_TorchDynamoContext.__call__.<locals>._fn",
            "compile_wrapper",
        ] {
            assert!(calls_compiled(file, function), "{function}");
            assert!(!calls_compiled("/job/eval_frame.py", function), "{function}");
        }
        for other in ["DisableContext.__call__.<locals>._fn", "_fn", "OptimizedModule.__call__"] {
            assert!(!calls_compiled(file, other), "{other}");
        }
    }

    #[test]
    fn breaks_of_graphs() {
        assert_eq!(resumed_at("torch_dynamo_resume_in_forward_at_88"), Some(88));
        assert_eq!(resumed_at("Net.torch_dynamo_resume_in_forward_at_7"), Some(7));
        for other in ["forward", "torch_dynamo_resume_in_forward_at_home", "torch_dynamo_resume_in_forward"] {
            assert_eq!(resumed_at(other), None);
        }
    }
}
