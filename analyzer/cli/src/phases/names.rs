// SPDX-License-Identifier: Apache-2.0
//! What a named range says it is: dataload, forward, backward or optimizer. Whole words only; a
//! name that says something else beside it (`forward hooks`, `pre_forward`) is none.

use verdict::gaps::input::is_input;

use super::Kind;

/// Begins the name of every node that PyTorch's autograd engine evaluates (torch.profiler,
/// `emit_nvtx`).
const AUTOGRAD_NODE: &str = "autograd::engine::evaluate_function";
/// Begin the names that torch.optim gives its methods: `Optimizer.step#AdamW.step`.
const TORCH_OPTIMIZER: [&str; 2] = ["optimizer.step#", "optimizer.zero_grad#"];
/// The name, or the last part of `DistributedDataParallel.forward`,
/// `[pl][profile][Strategy]X.backward`, in small letters, with single spaces.
const WORDS: [(Kind, &[&str]); 3] = [
    (
        Kind::Forward,
        &[
            "forward",
            "fwd",
            "forward pass",
            "forward compute",
            "forward step",
            "model forward",
            "training step",
        ],
    ),
    (
        Kind::Backward,
        &["backward", "bwd", "backward pass", "backward compute", "backward step", "loss backward"],
    ),
    (
        Kind::Optimizer,
        &[
            "optimizer",
            "optim",
            "opt",
            "optimizer step",
            "optim step",
            "opt step",
            "optimize",
            "update weights",
        ],
    ),
];

/// Is it a node of PyTorch's autograd engine? What it launches is backward, though nobody named it
/// so.
pub(super) fn is_node(name: &str) -> bool {
    name.starts_with(AUTOGRAD_NODE)
}

/// The phase a range of this name is; `None`: another thing, or nobody knows.
pub(super) fn kind(name: &str) -> Option<Kind> {
    let small = name.trim().to_ascii_lowercase();
    if is_node(&small) {
        return Some(Kind::Backward);
    }
    if TORCH_OPTIMIZER.iter().any(|o| small.starts_with(o)) {
        return Some(Kind::Optimizer);
    }
    if is_input(&small) {
        return Some(Kind::Dataload);
    }
    let last = small.rsplit(['.', ':', '/']).next().unwrap_or("");
    let words: Vec<&str> = last.split(['_', '-', ' ']).filter(|w| !w.is_empty()).collect();
    let said = words.join(" ");
    WORDS.iter().find(|(_, names)| names.contains(&said.as_str())).map(|w| w.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_phases_and_names_that_only_sound_so() {
        for (name, expected) in [
            ("forward", Some(Kind::Forward)),
            ("Forward_Pass", Some(Kind::Forward)),
            ("forward-compute", Some(Kind::Forward)),
            ("DistributedDataParallel.forward", Some(Kind::Forward)),
            ("[pl][profile][Strategy]SingleDeviceStrategy.training_step", Some(Kind::Forward)),
            ("[pl][profile][Strategy]SingleDeviceStrategy.backward", Some(Kind::Backward)),
            ("loss.backward", Some(Kind::Backward)),
            ("autograd::engine::evaluate_function: MmBackward0", Some(Kind::Backward)),
            ("Optimizer.step#AdamW.step", Some(Kind::Optimizer)),
            ("Optimizer.zero_grad#SGD.zero_grad", Some(Kind::Optimizer)),
            ("optimizer_step", Some(Kind::Optimizer)),
            ("enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__", Some(Kind::Dataload)),
            ("FSDP::pre_forward (encoder.block.18.layer.1)", None),
            ("forward hooks", None),
            ("MmBackward0", None),
            ("aten::linear", None),
            ("step", None),
            ("optimizer state", None),
            ("", None),
        ] {
            assert_eq!(kind(name), expected, "{name}");
        }
    }
}
