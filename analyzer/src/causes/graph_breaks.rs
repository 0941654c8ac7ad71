// SPDX-License-Identifier: Apache-2.0
//! GP115 GRAPH-BREAKS: a compiled function falls apart, and its pieces are launched one by one.
//!
//! # What it means
//! `torch.compile` could not compile the function as a whole: at a call it cannot trace (`print`, `.item()`, a C extension,
//! control flow that depends on data) it breaks the graph, goes back to Python, checks its guards and enters the next piece. The
//! GPU waits for this.
//!
//! # How it is recognised
//! As GP102 LAUNCH; and 5 samples or more of the launching thread's stack, taken while the GPU waited for a launch, stand behind such a break:
//! TorchDynamo compiles the rest of the function under the name `torch_dynamo_resume_in_NAME_at_LINE`. They are half of the samples at least; or half
//! stand inside of what `torch.compile` made (a frame of `torch/_dynamo/eval_frame.py` calls it), and of these (5 or more whose whole stack is known) a fifth behind a break, 3 at least, and more than chance gives were it a tenth (3 of 9, 4 of 15, 6 of 30): the others are
//! in the pieces before it, and on the way from one to the next. What a break calls of `backward()` or of an optimizer is no piece. The break told is the one that most of them stand behind. The prediction is
//! GP102's: one graph of the whole step.
//!
//! # How sure
//! That the graph breaks there is so; how much of the waiting the break itself costs is not known, so the confidence is medium at
//! most. Breaks whose rest is not waited for are not seen.
//!
//! # What to change
//! `TORCH_LOGS=graph_breaks` prints each break and its reason; `torch.compile(fullgraph=True)` makes it an error. Take logging and
//! `.item()` out of the compiled function, use `torch.where` or `torch.cond` for control flow; then `mode="reduce-overhead"`.

use super::{launch, Case};
use crate::analysis::{Confidence, Finding};
use crate::sites::is_users;

/// Stable code.
pub const CODE: &str = "GP115";
/// Name in the line.
pub const NAME: &str = "GRAPH-BREAKS";

pub(super) fn evaluate(case: &Case) -> Option<Finding> {
    let mut f = launch::of_kind(
        case,
        (CODE, NAME),
        "take out what breaks the graph (TORCH_LOGS=graph_breaks names it), then torch.compile(mode=\"reduce-overhead\")",
    )?;
    f.confidence = f.confidence.min(Confidence::Medium);
    let stood = &case.device.launch;
    match &stood.break_at {
        // the line to change, not the one that calls all of it
        Some((site, _)) if is_users(&site.path) => {
            f.text = format!("{site}: {}; the graph breaks there", f.text);
            f.site = Some(site.clone());
        }
        Some((site, _)) => {
            launch::place(case, &mut f);
            f.text.push_str(&format!("; the graph breaks at {}:{}", site.file, site.line));
        }
        None => launch::place(case, &mut f),
    }
    let most = stood.break_at.as_ref().map_or(0, |b| b.1);
    let others = if most < stood.broken { format!(" ({most} behind this one)") } else { String::new() };
    let (n, all, what) = match (stood.whole, stood.broken * 2 >= stood.samples) {
        (_, true) | ([0, _], _) => (stood.broken, stood.samples, "samples"),
        ([whole, broken], false) => (broken, whole, "samples that show all frames"),
    };
    f.text.push_str(&format!("; behind a break in {n} of {all} {what}{others}"));
    Some(f)
}
