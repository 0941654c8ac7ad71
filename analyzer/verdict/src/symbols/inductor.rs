// SPDX-License-Identifier: Apache-2.0
//! What a kernel of torch.compile was made of. Inductor writes the Python that calls its kernels,
//! with a comment before each call: `# Topologically Sorted Source Nodes: [h, out], Original ATen:
//! [aten.add, aten.relu]` (PyTorch 2.0 to 2.15: `torch/_inductor/utils.py`, `get_kernel_metadata`).

use std::collections::HashMap;
use std::path::Path;

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

/// Files read so far; `None`: not there, or none of Inductor's.
#[derive(Default)]
pub(super) struct Files(HashMap<u32, Option<String>>);

impl Files {
    /// What the kernel was made of that this stack launched; `None`: it was not launched from
    /// Inductor's code, or that is not there any more.
    pub(super) fn made(&mut self, definitions: &Definitions, stack: u32) -> Option<Made> {
        let text = |id| definitions.string(id).unwrap_or("");
        let calls = |f: &&FrameInfo| text(f.function).rsplit('.').next() == Some(CALLER);
        let frame = definitions.stack(stack).find(calls)?;
        let code = self.0.entry(frame.file).or_insert_with(|| read(Path::new(text(frame.file))));
        made(code.as_deref()?, frame.line)
    }
}

fn read(path: &Path) -> Option<String> {
    let is_short = std::fs::metadata(path).is_ok_and(|m| m.is_file() && m.len() <= LONGEST);
    let code = is_short.then(|| std::fs::read_to_string(path).ok())?;
    code.filter(|code| code.contains(NODES))
}

/// By the comment in front of the call in this line (from 1 on), and behind the call before it.
fn made(code: &str, line: u32) -> Option<Made> {
    let before: Vec<&str> = code.lines().take(line.checked_sub(1)? as usize).collect();
    let is_call = |line: &&&str| CALLS.iter().any(|call| line.contains(call));
    let is_comment = |line: &str| line.trim_start().starts_with('#');
    let comment = before
        .iter()
        .rev()
        .take_while(|line| is_comment(line) || !is_call(line))
        .find(|l| l.contains(NODES))?;
    let list = |begin| {
        let (_, rest) = comment.split_once(begin)?;
        rest.split_once(']').map(|(list, _)| list)
    };
    let operators =
        list(OPERATORS)?.replace(", ", "+").replace("aten.", "aten::").replace("prims.", "prims::");
    (!operators.is_empty()).then(|| Made { operators, nodes: list(NODES).unwrap_or("").to_owned() })
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
        let said = |line| made(CODE, line).map(|m| (m.operators, m.nodes));
        assert_eq!(said(5), Some(("aten::addmm".into(), "h".into())));
        assert_eq!(said(10), Some(("aten::addmm+aten::relu".into(), "h, out".into())));
        assert_eq!(said(11), None, "that of the call before");
        assert_eq!(said(13), None, "it says nothing");
        assert_eq!((said(3), said(0), said(u32::MAX)), (None, None, None));
    }
}
