// SPDX-License-Identifier: Apache-2.0
//! Work of PyTorch's operators, by the inputs that torch.profiler tells (`record_shapes=True`). Of
//! those that launch kernels themselves: what is in another operator is not counted twice.

use super::inputs::{numbers, Inputs};
use super::{Pipe, Work};

/// Results as large as the largest input; each input read once.
const ELEMENT_WISE: [&str; 48] = [
    "add",
    "add_",
    "sub",
    "sub_",
    "rsub",
    "mul",
    "mul_",
    "div",
    "div_",
    "neg",
    "abs",
    "exp",
    "log",
    "pow",
    "sqrt",
    "sqrt_",
    "rsqrt",
    "reciprocal",
    "relu",
    "relu_",
    "threshold_backward",
    "gelu",
    "gelu_backward",
    "silu",
    "silu_",
    "silu_backward",
    "sigmoid",
    "sigmoid_backward",
    "tanh",
    "tanh_backward",
    "leaky_relu",
    "leaky_relu_",
    "clamp",
    "clamp_min",
    "cos",
    "sin",
    "where",
    "masked_fill_",
    "addcmul_",
    "addcdiv_",
    "lerp_",
    "native_dropout_backward",
    "_softmax",
    "_log_softmax",
    "native_layer_norm",
    "native_layer_norm_backward",
    "_softmax_backward_data",
    "_log_softmax_backward_data",
];

/// What `name` has to do with these inputs, and what products of it compute on: of 32 bits
/// [`Pipe::Tf32`], which only the kernels can tell from [`Pipe::Fp32`]. `None`: it is none of those
/// that are known.
pub fn work(name: &str, inputs: &Inputs) -> Option<(Work, Pipe)> {
    let name = name.strip_prefix("aten::")?;
    let pipe = match (inputs.of_16_bits, inputs.of_32_bits) {
        (true, _) => Pipe::Tensor16,
        (_, true) => Pipe::Tf32,
        _ => Pipe::Unknown,
    };
    let moved = |bytes: f64| Some((Work { flops: 0.0, bytes }, Pipe::Unknown));
    match name {
        "mm" | "bmm" => product(inputs, 0).map(|work| (work, pipe)),
        "addmm" | "baddbmm" => {
            let mut work = product(inputs, 1)?;
            work.bytes += inputs.bytes(0);
            Some((work, pipe))
        }
        "cudnn_convolution" => convolution(inputs).map(|work| (work, pipe)),
        "convolution_backward" => convolution_backward(inputs).map(|work| (work, pipe)),
        _ if name.contains("attention") => attention(name, inputs).map(|work| (work, pipe)),
        "copy_" => moved(inputs.bytes_of(0, numbers(inputs.shape(0)?)) + inputs.bytes(1)),
        "fill_" | "zero_" => moved(inputs.bytes(0)),
        "sum" | "mean" | "amax" => moved(inputs.bytes(0)),
        _ if ELEMENT_WISE.contains(&name) => {
            if inputs.holds_result(name) {
                return moved(inputs.all_bytes());
            }
            let most = inputs.most();
            // (a norm keeps the mean in 32 bits, its result is as its input)
            let width = match name.ends_with('_') || name.starts_with("native_layer_norm") {
                true => inputs.widths.first().copied().flatten(),
                false => inputs.widest(),
            };
            moved(inputs.all_bytes() + most * width? as f64)
        }
        _ => None,
    }
}

/// Of the matrices at this place and the next, `[.., m, k]` and `[.., k, n]`.
fn product(inputs: &Inputs, at: usize) -> Option<Work> {
    let (left, right) = (inputs.shape(at)?, inputs.shape(at + 1)?);
    let (&n, &k) = (right.last()?, left.last()?);
    let of_result = numbers(left) / k.max(1) as f64 * n as f64;
    let bytes = inputs.bytes(at) + inputs.bytes(at + 1) + inputs.bytes_of(at, of_result);
    Some(Work { flops: 2.0 * of_result * k as f64, bytes })
}

/// `cudnn_convolution(input, weight, padding, stride, dilation, ...)`.
fn convolution(inputs: &Inputs) -> Option<Work> {
    let (input, weight) = (inputs.shape(0)?, inputs.shape(1)?);
    let [padding, stride, dilation] = [2, 3, 4].map(|at| inputs.numbers_at(at));
    let (padding, stride, dilation) = (padding?, stride?, dilation?);
    let mut result = *input.first()? as f64 * *weight.first()? as f64;
    for (i, (&size, &kernel)) in input.iter().skip(2).zip(weight.iter().skip(2)).enumerate() {
        let of = |list: &[u64]| list.get(i).or(list.last()).copied();
        let covered = of(&dilation)?.checked_mul(kernel.saturating_sub(1))?.checked_add(1)?;
        let room = of(&padding)?.checked_mul(2)?.checked_add(size)?.checked_sub(covered)?;
        result *= (room / of(&stride)?.max(1)) as f64 + 1.0;
    }
    let bytes = inputs.bytes(0) + inputs.bytes(1) + inputs.bytes_of(0, result);
    Some(Work { flops: 2.0 * result * numbers(weight.get(1..)?), bytes })
}

/// `convolution_backward(gradient, input, weight, bias_sizes, stride, padding, dilation,
/// transposed, output_padding, groups, output_mask)`.
fn convolution_backward(inputs: &Inputs) -> Option<Work> {
    let (gradient, weight) = (inputs.shape(0)?, inputs.shape(2)?);
    if inputs.value(7)? != "False" {
        return None;
    }
    let wanted: Vec<bool> =
        inputs.value(10)?.trim_matches(['[', ']']).split(", ").map(|w| w == "True").collect();
    let wants = |at: usize| wanted.get(at).copied().unwrap_or(false);
    let one = 2.0 * numbers(gradient) * numbers(weight.get(1..)?);
    let mut work = Work::default();
    // the input's from gradient and weight, the weight's from gradient and input
    for (is_wanted, other, made) in [(wants(0), 2, 1), (wants(1), 1, 2)] {
        if is_wanted {
            work += Work { flops: one, bytes: inputs.bytes(0) + inputs.bytes(other) + inputs.bytes(made) };
        }
    }
    Some(work)
}

/// Queries, keys and values of one length for all of a batch: of several lengths, laid end to end,
/// the shapes do not tell them.
fn attention(name: &str, inputs: &Inputs) -> Option<Work> {
    // where the queries stand, what says that it is causal, and how long each of a batch is
    let (queries, causal, lengths, batch_first) = match name {
        "_flash_attention_forward" => (0, 8, 3, true),
        "_efficient_attention_forward" => (0, 9, 4, true),
        "_scaled_dot_product_cudnn_attention" => (0, 6, usize::MAX, false),
        "_cudnn_attention_forward" => (0, 10, 4, false),
        "_flash_attention_backward" => (1, 11, 6, true),
        "_efficient_attention_backward" => (1, 14, 6, true),
        "_scaled_dot_product_cudnn_attention_backward" | "_cudnn_attention_backward" => (1, 14, 9, false),
        _ => return None,
    };
    if inputs.shape(lengths).is_some_and(|l| l.iter().any(|&n| n > 0)) {
        return None;
    }
    // (of a window only a part of the keys is met: to its left and right, -1 without one)
    let windows = match name {
        "_flash_attention_forward" => 11..13,
        "_flash_attention_backward" => 15..17,
        _ => 0..0,
    };
    let is_window = |at| inputs.value(at).and_then(|v| v.parse::<i64>().ok()).is_some_and(|n| n >= 0);
    if windows.into_iter().any(is_window) {
        return None;
    }
    let (q, k) = (inputs.shape(queries)?, inputs.shape(queries + 1)?);
    let [batch, q_len, heads, width] = <[u64; 4]>::try_from(q).ok()?.map(|n| n as f64);
    let (q_len, heads) = if batch_first { (q_len, heads) } else { (heads, q_len) };
    let keys = *k.get(if batch_first { 1 } else { 2 })? as f64;
    let of_values = *inputs.shape(queries + 2)?.last()? as f64;
    let is_causal = matches!(inputs.value(causal)?, "True" | "1" | "2");
    let rows = batch * heads * q_len;
    // scores, and their product with the values; backward both again and the three of gradients
    // (FlashAttention-2: Dao 2023, section 4.1)
    let (widths, results) = match queries {
        0 => (width + of_values, inputs.bytes_of(0, rows * of_values)),
        _ => (3.0 * width + 2.0 * of_values, (1..4).map(|at| inputs.bytes(at)).sum()),
    };
    let flops = 2.0 * rows * keys * widths * if is_causal { 0.5 } else { 1.0 };
    Some(Work { flops, bytes: inputs.all_bytes() + results })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(name: &str, shapes: &str, types: &str, values: &str) -> Option<(f64, f64, Pipe)> {
        let (work, pipe) = work(name, &Inputs::new(shapes, types, values)?)?;
        Some((work.flops, work.bytes, pipe))
    }

    /// FLOPs as torch.utils.flop_counter has them (PyTorch 2.11), bytes by hand.
    #[test]
    fn products() {
        let half = r#"["c10::Half", "c10::Half"]"#;
        let mm = of("aten::mm", "[[512, 1024], [1024, 4096]]", half, "");
        let bytes = 2.0 * (512 * 1024 + 1024 * 4096 + 512 * 4096) as f64;
        assert_eq!(mm, Some((4294967296.0, bytes, Pipe::Tensor16)));
        let with_bias = r#"["c10::BFloat16", "c10::BFloat16", "c10::BFloat16", "Scalar", "Scalar"]"#;
        let addmm = of("aten::addmm", "[[4096], [512, 1024], [1024, 4096], [], []]", with_bias, "");
        assert_eq!(addmm, Some((4294967296.0, bytes + 8192.0, Pipe::Tensor16)));
        let bmm = of("aten::bmm", "[[8, 64, 32], [8, 32, 128]]", r#"["float", "float"]"#, "");
        let bytes = (4 * 8 * (64 * 32 + 32 * 128 + 64 * 128)) as f64;
        assert_eq!(bmm, Some((4194304.0, bytes, Pipe::Tf32)));
    }

    #[test]
    fn convolutions() {
        let float = r#"["float", "float", "ScalarList", "ScalarList", "ScalarList", "Scalar"]"#;
        let stem = of(
            "aten::cudnn_convolution",
            "[[32, 3, 224, 224], [64, 3, 7, 7], [], [], [], []]",
            float,
            r#"["", "", "[3, 3]", "[2, 2]", "[1, 1]", "1"]"#,
        );
        let (input, weight, result) = (32 * 3 * 224 * 224, 64 * 3 * 49, 32 * 64 * 112 * 112);
        assert_eq!(stem, Some((7552892928.0, (4 * (input + weight + result)) as f64, Pipe::Tf32)));
        let backward = |mask: &str| {
            let values = format!(
                r#"["", "", "", "[0]", "[2, 2]", "[3, 3]", "[1, 1]", "False", "[0, 0]", "1", "{mask}"]"#
            );
            let shapes =
                "[[32, 64, 112, 112], [32, 3, 224, 224], [64, 3, 7, 7], [], [], [], [], [], [], [], []]";
            of(
                "aten::convolution_backward",
                shapes,
                r#"["float", "float", "float", "", "", "", "", "", "", "", ""]"#,
                &values,
            )
        };
        assert_eq!(backward("[True, True, False]").map(|w| w.0), Some(15105785856.0));
        assert_eq!(backward("[False, True, False]").map(|w| w.0), Some(15105785856.0 / 2.0));
        let grouped = of(
            "aten::cudnn_convolution",
            "[[8, 64, 56, 56], [128, 16, 3, 3], [], [], [], []]",
            float,
            r#"["", "", "[0, 0]", "[1, 1]", "[2, 2]", "4"]"#,
        );
        assert_eq!(grouped.map(|w| w.0), Some(797442048.0));
        let too_small = of(
            "aten::cudnn_convolution",
            "[[1, 3, 2, 2], [64, 3, 7, 7], [], [], []]",
            float,
            r#"["", "", "[0]", "[1]", "[1]"]"#,
        );
        assert_eq!(too_small, None);
    }

    #[test]
    fn attention_is_half_where_it_is_causal() {
        let types =
            r#"["c10::Half", "c10::Half", "c10::Half", "", "", "Scalar", "Scalar", "Scalar", "Scalar"]"#;
        let of = |causal: &str| {
            let values = format!(r#"["", "", "", "", "", "128", "128", "0.", "{causal}"]"#);
            let shapes = "[[2, 128, 12, 64], [2, 256, 12, 64], [2, 256, 12, 64], [], [], [], [], [], []]";
            of("aten::_flash_attention_forward", shapes, types, &values).expect("known")
        };
        let flops = (2 * 2 * 2 * 12 * 128 * 256 * 64) as f64;
        let bytes = (2 * 2 * 12 * 64 * (128 + 256 + 256 + 128)) as f64;
        assert_eq!((of("False"), of("True").0), ((flops, bytes, Pipe::Tensor16), flops / 2.0));
    }

    /// FLOPs as torch.utils.flop_counter has them (PyTorch 2.11), half of them where it is causal;
    /// places as the schemas have them.
    #[test]
    fn attention_of_each_kind() {
        let lead = r#""c10::Half", "c10::Half", "c10::Half", "c10::Half""#;
        let flops = |name: &str, shapes: &str, places: usize, at: usize, causal: &str| {
            let mut values = vec![""; places];
            values[at] = causal;
            let values = format!("{values:?}");
            of(name, shapes, &format!("[{lead}, \"int\"]"), &values).map(|w| (w.0, w.1))
        };
        let (q, k, v) = ("[2, 16, 128, 192]", "[2, 16, 256, 192]", "[2, 16, 256, 128]");
        let forward = |is| {
            flops("aten::_cudnn_attention_forward", &format!("[{q}, {k}, {v}, [], [], [], []]"), 13, 10, is)
        };
        // (and a bias and a length of one number each)
        let bytes = (2 * 2 * 16 * (128 * 192 + 256 * 192 + 256 * 128 + 128 * 128)) as f64 + 6.0;
        assert_eq!(forward("False"), Some((671088640.0, bytes)));
        assert_eq!(forward("True").map(|w| w.0), Some(671088640.0 / 2.0));
        for name in ["_scaled_dot_product_cudnn_attention_backward", "_cudnn_attention_backward"] {
            let shapes = format!("[[2, 16, 128, 128], {q}, {k}, {v}]");
            let backward = flops(&format!("aten::{name}"), &shapes, 16, 14, "False");
            assert_eq!(backward.map(|w| w.0), Some(1744830464.0), "{name}");
        }
        let of_lengths = "[[1, 512, 16, 64], [1, 512, 16, 64], [1, 512, 16, 64], [], [9], [9]]";
        let efficient = |shapes: &str| flops("aten::_efficient_attention_forward", shapes, 14, 9, "0");
        assert_eq!(efficient(of_lengths), None, "eight sequences, end to end");
        assert!(efficient(&of_lengths.replace("[9]", "[]")).is_some());
    }

    #[test]
    fn numbers_larger_than_any_are_no_end() {
        let most = format!("[{0}, {0}, {0}, {0}]", u64::MAX);
        let shapes = format!("[{most}, {most}, {most}]");
        let half = r#"["c10::Half", "c10::Half", "c10::Half"]"#;
        let values = format!(r#"["", "", "[{0}]", "[1]", "[{0}]", "", "", "", "True"]"#, u64::MAX);
        assert_eq!(of("aten::cudnn_convolution", &shapes, half, &values), None);
        assert!(of("aten::_flash_attention_forward", &shapes, half, &values).is_some());
    }

    #[test]
    fn a_norms_result_is_as_wide_as_its_input() {
        let types = r#"["c10::BFloat16", "c10::BFloat16", "ScalarList", "float", "float", "c10::BFloat16"]"#;
        let shapes = "[[64, 1000], [64, 1000], [], [64, 1], [64, 1], [1000]]";
        let backward = of("aten::native_layer_norm_backward", shapes, types, "");
        assert_eq!(backward.map(|w| w.1), Some((2 * 3 * 64_000 + 4 * 2 * 64 + 2 * 1_000) as f64));
    }

    #[test]
    fn what_only_moves() {
        let add = of("aten::add", "[[64, 1000], [1000], []]", r#"["float", "float", "Scalar"]"#, "");
        assert_eq!(add, Some((0.0, (4 * (64_000 + 1_000 + 64_000)) as f64, Pipe::Unknown)));
        let float = r#"["c10::Half", "float"]"#;
        let wider = of("aten::mul", "[[64, 1000], [64, 1]]", float, "");
        assert_eq!(wider.map(|w| w.1), Some((2 * 64_000 + 4 * 64 + 4 * 64_000) as f64));
        let in_place = of("aten::mul_", "[[64, 1000], [64, 1]]", float, "");
        assert_eq!(in_place.map(|w| w.1), Some((2 * 64_000 + 4 * 64 + 2 * 64_000) as f64));
        let cast =
            of("aten::copy_", "[[64, 1000], [64, 1000], []]", r#"["c10::Half", "float", "Scalar"]"#, "");
        assert_eq!(cast, Some((0.0, 384_000.0, Pipe::Unknown)));
        assert_eq!(of("aten::zero_", "[[64]]", r#"["float"]"#, "").map(|w| w.1), Some(256.0));
        let out = r#"["float", "float", "Scalar", "float"]"#;
        let out = of("aten::add", "[[64, 1000], [1000], [], [64, 1000]]", out, "");
        assert_eq!(out, add, "into a tensor that is given");
        let out = r#"["float", "float", "float"]"#;
        let out = of("aten::mul", "[[64, 1000], [64, 1000], [64, 1000]]", out, "");
        assert_eq!(out.map(|w| w.1), Some((4 * 3 * 64_000) as f64));
        assert_eq!(of("aten::sort", "[[64]]", r#"["float"]"#, ""), None, "not known");
        assert_eq!(of("my::mm", "[[64]]", r#"["float"]"#, ""), None, "not PyTorch's");
        assert_eq!(of("aten::add", "[[64", r#"["float"]"#, ""), None, "no list");
        assert_eq!(of("aten::mm", "[[], []]", r#"["float", "float"]"#, ""), None);
    }
}
