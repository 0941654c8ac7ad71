// SPDX-License-Identifier: Apache-2.0
//! What torch.profiler tells of an operator's inputs.

/// What an operator was called with.
#[derive(Debug, Default)]
pub struct Inputs {
    pub(super) shapes: Vec<Vec<u64>>,
    /// Bytes of an element; `None`: no tensor.
    pub(super) widths: Vec<Option<u64>>,
    /// On what products of the first tensor's type are computed: in 16 bits, in 32 bits.
    pub(super) of_16_bits: bool,
    pub(super) of_32_bits: bool,
    values: Vec<String>,
}

impl Inputs {
    /// As the trace has them: `[[32, 64], []]`, `["float", "Scalar"]`, `["", "1"]`. `None`: they
    /// are no such lists.
    pub fn new(shapes: &str, types: &str, values: &str) -> Option<Inputs> {
        let shapes: Vec<Vec<u64>> = serde_json::from_str(shapes).ok()?;
        let types: Vec<String> = serde_json::from_str(types).ok()?;
        let values = serde_json::from_str(values).unwrap_or_default();
        let first = types.iter().find(|t| width(t).is_some())?;
        Some(Inputs {
            of_16_bits: matches!(&**first, "c10::BFloat16" | "c10::Half"),
            of_32_bits: first == "float",
            widths: types.iter().map(|t| width(t)).collect(),
            shapes,
            values,
        })
    }

    /// Shape of the tensor at this place.
    pub(super) fn shape(&self, at: usize) -> Option<&[u64]> {
        self.widths.get(at).copied().flatten()?;
        self.shapes.get(at).map(|s| &**s)
    }

    /// Bytes of the tensor at this place; 0: there is none.
    pub(super) fn bytes(&self, at: usize) -> f64 {
        let width = self.widths.get(at).copied().flatten().unwrap_or(0);
        self.shapes.get(at).map_or(0.0, |shape| numbers(shape) * width as f64)
    }

    /// Bytes of all of them.
    pub(super) fn all_bytes(&self) -> f64 {
        (0..self.shapes.len()).map(|at| self.bytes(at)).sum()
    }

    /// Numbers in the largest.
    pub(super) fn most(&self) -> f64 {
        self.shapes.iter().map(|s| numbers(s)).fold(0.0, f64::max)
    }

    /// Is the last of them what an elementwise operator writes (`out=`)? It comes behind numbers,
    /// or is one tensor more than the operator takes.
    pub(super) fn holds_result(&self, name: &str) -> bool {
        let last = self.shapes.len().saturating_sub(1);
        let Some(shape) = self.shape(last).filter(|s| !s.is_empty() && numbers(s) == self.most()) else {
            return false;
        };
        let tensors = (0..=last).filter(|&at| self.shape(at).is_some_and(|s| s.len() == shape.len())).count();
        let has_numbers = (0..last).any(|at| self.shape(at).is_none());
        has_numbers || (matches!(name, "mul" | "div") && tensors > 2)
    }

    /// Bytes of one of the type at this place with so many numbers.
    pub(super) fn bytes_of(&self, at: usize, numbers: f64) -> f64 {
        numbers * self.widths.get(at).copied().flatten().unwrap_or(0) as f64
    }

    /// Bytes of an element of what several tensors give: types are promoted.
    pub(super) fn widest(&self) -> Option<u64> {
        let tensors = self.shapes.iter().zip(&self.widths).filter(|(shape, _)| !shape.is_empty());
        tensors.filter_map(|(_, width)| *width).max()
    }

    /// What is no tensor, at this place: `True`, `[1, 1]`.
    pub(super) fn value(&self, at: usize) -> Option<&str> {
        self.values.get(at).map(|v| &**v)
    }

    pub(super) fn numbers_at(&self, at: usize) -> Option<Vec<u64>> {
        serde_json::from_str(self.value(at)?).ok()
    }
}

fn width(kind: &str) -> Option<u64> {
    Some(match kind {
        "double" | "long" | "long int" | "c10::complex<float>" => 8,
        "float" | "int" => 4,
        "c10::BFloat16" | "c10::Half" | "short" | "short int" => 2,
        "bool" | "unsigned char" | "signed char" => 1,
        float8 if float8.starts_with("c10::Float8") => 1,
        _ => return None,
    })
}

pub(super) fn numbers(shape: &[u64]) -> f64 {
    shape.iter().map(|&n| n as f64).product()
}
