// SPDX-License-Identifier: Apache-2.0
//! GP115 GRAPH-BREAKS: a compiled function breaks into pieces that are launched one by one.
//!
//! # What it means
//! `torch.compile` could not compile the function as a whole. At a call that it cannot trace
//! (`print`, `.item()`, a C extension, control flow that depends on data) the graph breaks: the
//! program goes back to Python, checks guards and enters the next piece. The GPU waits for this.
//!
//! # How it is recognised
//! The GPU waits for launches (GP102 LAUNCH), and samples of the launching thread's stack, taken
//! while it waits, are after a graph break: in a function `torch_dynamo_resume_in_NAME_at_LINE`.
//! Either at least half of all samples are there (5 or more), or at least half are inside of
//! compiled code, and a fifth of these are after a break (3 or more). `backward()` and optimizer
//! steps that run after a break do not count. The line named is that of the break with the most
//! samples.
//!
//! # How sure
//! That the graph breaks there is certain. How much of the waiting the break itself costs is not
//! known, so the confidence is medium at most. The prediction is GP102's, one CUDA graph for the
//! whole step. A break is not seen where the GPU does not wait for what comes after it.
//!
//! # Example
//! ```python
//! # slow: the graph breaks at `print`
//! @torch.compile
//! def block(x):
//!     h = torch.relu(up(x))
//!     print("hidden", h.shape)
//!     return x + down(h)
//! # fixed: one graph, and an error where something breaks it
//! @torch.compile(mode="reduce-overhead", fullgraph=True)
//! def block(x):
//!     return x + down(torch.relu(up(x)))
//! ```
//!
//! # What to change
//! `TORCH_LOGS=graph_breaks` prints each break and its reason; `torch.compile(fullgraph=True)`
//! makes a break an error. Take logging and `.item()` out of the compiled function, use
//! `torch.where` or `torch.cond` for control flow. Then compile with `mode="reduce-overhead"`.

use super::{launch, Case};
use crate::analysis::{Advice, Confidence, Fact, Figure, Finding};
use crate::sites::is_users;

/// Stable code.
pub const CODE: &str = "GP115";
/// Name in the line.
pub const NAME: &str = "GRAPH-BREAKS";

/// Whether it is this kind: `Dispatched::falls_apart`. Of the samples in compiled code, those whose
/// whole stack is known count (5 or more). Those after a break are to be more than chance gives if
/// it were one in ten: 3 of 9, 4 of 15, 6 of 30. The others are in the pieces before the break and
/// on the way between pieces.
pub(super) fn evaluate(case: &Case) -> Option<Finding> {
    let mut f = launch::of_kind(
        case,
        (CODE, NAME),
        Advice::new("remove the graph breaks", "take out what breaks the graph (TORCH_LOGS=graph_breaks names it), then torch.compile(mode=\"reduce-overhead\")"),
    )?;
    f.confidence = f.confidence.min(Confidence::Medium);
    let stood = &case.device.launch;
    match &stood.break_at {
        // the line to change, not the one that calls all of it
        Some((site, _)) if is_users(&site.path) => {
            f.facts.say(Fact::new("the graph breaks there"));
            f.place(site.clone());
        }
        Some((site, _)) => {
            launch::place(case, &mut f);
            f.facts.say(Fact::new("the graph breaks at {break}").with("break", Figure::Place(site.clone())));
        }
        None => launch::place(case, &mut f),
    }
    let most = stood.break_at.as_ref().map_or(0, |b| b.1);
    let (n, all, after) = match (stood.whole, stood.broken * 2 >= stood.samples) {
        (_, true) | ([0, _], _) => {
            (stood.broken, stood.samples, Fact::new("after a break in {broken} of {samples} samples"))
        }
        ([whole, broken], false) => {
            (broken, whole, Fact::new("after a break in {broken} of {samples} samples that show all frames"))
        }
    };
    f.facts.say(after.with("broken", n).with("samples", all));
    if most < stood.broken {
        f.facts.say(Fact::new(" ({most} after this one)").with("most", most));
    }
    Some(f)
}
