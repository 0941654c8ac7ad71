// SPDX-License-Identifier: Apache-2.0
//! Kernels by the name a table shows: definitions of one name (other grids, blocks, mangled
//! variants) are one kernel.

use std::rc::Rc;

use foldhash::{HashMap, HashMapExt};
use trace::Kind;
use verdict::run::Run;
use verdict::text::kernel_name::{demangled, shortened};

use super::table::{row, Row};
use crate::kernel_class::{class_of, KernelClass};

/// How kernels are named.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum NameStyle {
    /// As C++ source has it, templates and parameters too: nsys's way.
    #[default]
    Whole,
    /// Without return type, parameters, namespaces and lambdas: variants that differ in those alone
    /// are one.
    Short,
}

/// A kernel as a table shows it.
#[derive(Clone, Debug)]
pub(super) struct Kernel {
    pub(super) name: Rc<str>,
    pub(super) class: KernelClass,
}

/// The kernels of a run.
#[derive(Debug, Default)]
pub(super) struct Kernels {
    by_id: HashMap<u32, u32>,
    by_name: Vec<Kernel>,
}

impl Kernels {
    /// Looks at every kernel that an operation refers to, once.
    pub(super) fn new(run: &Run, style: NameStyle) -> Kernels {
        let mut kernels = Kernels::default();
        let mut numbers: HashMap<Rc<str>, u32> = HashMap::new();
        let mut last = None;
        for op in run.devices.iter().flat_map(|d| &d.streams).flat_map(|s| &s.ops) {
            if op.kind != Kind::Kernel || last == Some(op.a) || kernels.by_id.contains_key(&op.a) {
                continue;
            }
            last = Some(op.a);
            let whole = demangled(run.definitions.kernel_name(op.a));
            let class = class_of(&whole);
            let name = match style {
                NameStyle::Whole => whole,
                NameStyle::Short => shortened(&whole),
            };
            let number = *numbers.entry(name.into()).or_insert_with_key(|name| {
                kernels.by_name.push(Kernel { name: name.clone(), class });
                kernels.by_name.len() as u32 - 1
            });
            kernels.by_id.insert(op.a, number);
        }
        kernels
    }

    /// Number of the kernel with this definition id, which must occur.
    pub(super) fn number(&self, id: u32) -> usize {
        self.by_id.get(&id).map_or(0, |&n| n as usize)
    }

    /// By number.
    pub(super) fn all(&self) -> &[Kernel] {
        &self.by_name
    }

    /// Name and class of the kernel with this number.
    pub(super) fn cells(&self, number: usize) -> Row {
        match self.by_name.get(number) {
            Some(k) => row![&k.name, k.class.label()],
            None => row![None::<&str>, None::<&str>],
        }
    }

    /// Name of the kernel with this number.
    pub(super) fn name(&self, number: usize) -> Option<&Rc<str>> {
        self.by_name.get(number).map(|k| &k.name)
    }
}
