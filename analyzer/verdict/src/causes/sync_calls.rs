// SPDX-License-Identifier: Apache-2.0
//! Which way of waiting a synchronizing call is, by the call itself and by PyTorch's frame that
//! made it: each has another way out.

use trace::Language;

use crate::analysis::Advice;
use crate::run::{Call, Run};

/// A value is read, a stream is waited for, or what it is for is not known.
pub(super) const READ_LATER: Advice = Advice::new("read values later", "read the value later or on the GPU (a mask as index, and nonzero(), ask for a size: where() does not); remove synchronizes left over from timing");
const TORCH: Advice = Advice::new(
    "remove torch.cuda.synchronize()",
    "remove torch.cuda.synchronize(); where it is there to time, record CUDA events \
    (torch.cuda.Event(enable_timing=True)) and read them later",
);
const DEVICE: Advice = Advice::new(
    "remove the wait, or wait for an event",
    "remove the wait, or wait only for the event or stream that is needed; where it is there to time, \
    record CUDA events and read them later",
);
const EVENT: Advice = Advice::new(
    "query() the event, or wait later",
    "ask the event whether it is done (query()) and go on, or wait for it later, after more launches",
);
pub(super) const TOGETHER: Advice = Advice::new(
    "put the values together, copy once",
    "put the values together (torch.stack; those for the GPU in pinned memory) and copy them once",
);
/// What their names end with: CUDA's, HIP's, Level Zero's.
const OF_EVENTS: [&str; 2] = ["EventSynchronize", "EventHostSynchronize"];
const OF_DEVICES: [&str; 3] = ["DeviceSynchronize", "ThreadSynchronize", "CtxSynchronize"];
/// All of the fixes.
pub(crate) const FIXES: [Advice; 5] = [READ_LATER, TORCH, DEVICE, EVENT, TOGETHER];

/// What to change about a wait in this call.
pub(crate) fn fix(run: &Run, call: &Call) -> Advice {
    let name = run.call_name(call);
    let ends = |with: &[&str]| with.iter().any(|end| name.ends_with(end));
    match () {
        () if ends(&OF_EVENTS) => EVENT,
        () if is_torchs_synchronize(run, call) => TORCH,
        () if ends(&OF_DEVICES) => DEVICE,
        () => READ_LATER,
    }
}

/// `torch.cuda.synchronize()` is a function of Python's: the innermost one.
fn is_torchs_synchronize(run: &Run, call: &Call) -> bool {
    let text = |id| run.definitions.string(id).unwrap_or("");
    let innermost = run.site(call).find(|f| f.language == Language::Python);
    innermost.is_some_and(|f| {
        text(f.function) == "synchronize" && text(f.file).ends_with("torch/cuda/__init__.py")
    })
}
