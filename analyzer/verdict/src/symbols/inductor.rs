// SPDX-License-Identifier: Apache-2.0
//! What a kernel of torch.compile was made of. Inductor writes the Python that calls its kernels,
//! with a comment before each call: `# Topologically Sorted Source Nodes: [h, out], Original ATen:
//! [aten.add, aten.relu]` (PyTorch 2.0 to 2.15: `torch/_inductor/utils.py`, `get_kernel_metadata`).

use std::collections::HashMap;
use std::fs::File;
use std::io::Read;
use std::path::Path;
use std::time::Instant;

use trace::{Definitions, FrameInfo};

/// Longest file read, bytes.
const LONGEST: u64 = 32 << 20;
/// Name of the function that calls the kernels; later releases have it in a class.
const CALLER: &str = "call";
/// In the comment.
const NODES: &str = "Source Nodes: [";
const OPERATORS: &str = "Original ATen: [";
/// In lines that call a kernel: one of Triton's, of PyTorch's, an operator.
const CALLS: [&str; 3] = [".run(", "extern_kernels.", "torch.ops."];

/// What one kernel was made of.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(super) struct Made {
    /// `aten::add+aten::relu`
    pub(super) operators: String,
    /// Nodes of the graph that was compiled, which have the names of its variables: `h, out`.
    pub(super) nodes: String,
}

/// What kernels were made of that a file's lines call, by line.
type Calls = HashMap<u32, Made>;

/// Files read so far; of one that is none of Inductor's nothing is called.
pub(super) struct Files {
    read: HashMap<u32, Calls>,
    until: Option<Instant>,
}

impl Files {
    /// Reads until then.
    pub(super) fn new(until: Option<Instant>) -> Files {
        Files { read: HashMap::new(), until }
    }

    /// What the kernel was made of that this stack launched; `None`: it was not launched from
    /// Inductor's code, or that is not there any more.
    pub(super) fn made(&mut self, definitions: &Definitions, stack: u32) -> Option<Made> {
        let text = |id| definitions.string(id).unwrap_or("");
        let calls = |f: &&FrameInfo| text(f.function).rsplit('.').next() == Some(CALLER);
        let frame = definitions.stack(stack).find(calls)?;
        let until = self.until;
        let file = self.read.entry(frame.file).or_insert_with(|| {
            let is_late = until.is_some_and(|until| Instant::now() > until);
            let code = if is_late { None } else { read(Path::new(text(frame.file))) };
            made(&code.unwrap_or_default())
        });
        file.get(&frame.line).cloned()
    }
}

fn read(path: &Path) -> Option<String> {
    // not a pipe, which would wait for a writer
    std::fs::metadata(path).ok().filter(std::fs::Metadata::is_file)?;
    let mut code = String::new();
    File::open(path).ok()?.take(LONGEST).read_to_string(&mut code).ok()?;
    Some(code)
}

/// Each call is of what the comment in front of it says, behind the call before.
fn made(code: &str) -> Calls {
    let (mut calls, mut said) = (Calls::new(), None);
    for (line, number) in code.lines().zip(1..) {
        let is_comment = line.trim_start().starts_with('#');
        if let (true, Some(comment)) = (is_comment, comment(line)) {
            said = Some(comment);
        } else if !is_comment && CALLS.iter().any(|call| line.contains(call)) {
            if let Some(made) = said.take().filter(|made| !made.operators.is_empty()) {
                calls.insert(number, made);
            }
        }
    }
    calls
}

fn comment(line: &str) -> Option<Made> {
    let list = |begin| {
        let (_, rest) = line.split_once(begin)?;
        rest.split_once(']').map(|(list, _)| list)
    };
    let operators =
        list(OPERATORS)?.replace(", ", "+").replace("aten.", "aten::").replace("prims.", "prims::");
    Some(Made { operators, nodes: list(NODES)?.to_owned() })
}

#[cfg(test)]
mod tests {
    use super::*;

    const CODE: &str = "\
def call(args):
    with torch.cuda._DeviceGuard(0):
        buf0 = empty_strided_cuda((8, 8), (8, 1), torch.float32)
        # Topologically Sorted Source Nodes: [h], Original ATen: [aten.addmm]
        extern_kernels.mm(arg0_1, arg1_1, out=buf0)
        del arg0_1
        buf1 = buf0; del buf0  # reuse
        # Topologically Sorted Source Nodes: [h, out], Original ATen: [aten.addmm, aten.relu]
        stream0 = get_raw_stream(0)
        triton_poi_fused_addmm_relu_0.run(buf1, 64, stream=stream0)
        triton_poi_fused_1.run(buf1, 64, stream=stream0)
        # Source Nodes: [], Original ATen: []
        triton_poi_fused_2.run(buf1, 64, stream=stream0)
    return (buf1,)
";

    #[test]
    fn a_kernel_is_made_of_what_the_comment_before_its_call_says() {
        let calls = made(CODE);
        let said = |line| calls.get(&line).map(|m| (m.operators.clone(), m.nodes.clone()));
        assert_eq!(said(5), Some(("aten::addmm".into(), "h".into())));
        assert_eq!(said(10), Some(("aten::addmm+aten::relu".into(), "h, out".into())));
        assert_eq!(said(11), None, "that of the call before");
        assert_eq!(said(13), None, "it says nothing");
        assert_eq!((said(3), said(0), said(u32::MAX)), (None, None, None));
    }
}
