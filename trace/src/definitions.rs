// SPDX-License-Identifier: Apache-2.0
//! What the ids of a recording stand for: its definitions, looked up.

use std::collections::HashMap;

use crate::define::{
    u32_at, CallerInfo, CapturedLaunch, Definition, DeviceInfo, FrameInfo, InModule, KernelInfo, Language,
    ModuleInfo, NativeStack, TrackInfo, MAX_FRAMES,
};

/// All definitions of a recording, by id.
#[derive(Clone, Debug, Default)]
pub struct Definitions {
    strings: HashMap<u32, String>,
    kernels: HashMap<u32, KernelInfo>,
    tracks: HashMap<u32, TrackInfo>,
    devices: HashMap<u32, DeviceInfo>,
    attributes: Vec<(u32, u32)>,
    frames: HashMap<u32, FrameInfo>,
    stacks: HashMap<u32, Box<[u32]>>,
    modules: HashMap<u32, ModuleInfo>,
    callers: HashMap<u32, CallerInfo>,
    in_modules: HashMap<u32, InModule>,
    natives: Vec<NativeStack>,
    captured: HashMap<u32, CapturedLaunch>,
}

impl Definitions {
    /// Takes one definition in.
    pub fn insert(&mut self, id: u32, definition: Definition<'_>) {
        match definition {
            Definition::String(s) => {
                self.strings.insert(id, String::from_utf8_lossy(s).into_owned());
            }
            Definition::Kernel(k) => {
                self.kernels.insert(id, k);
            }
            Definition::Track(t) => {
                self.tracks.insert(id, t);
            }
            Definition::Device(d) => {
                self.devices.insert(id, d);
            }
            Definition::Attribute(k, v) => self.attributes.push((k, v)),
            Definition::Frame(f) => {
                self.frames.insert(id, f);
            }
            Definition::Stack(frames) => {
                let ids = frames.chunks_exact(4).filter_map(|b| u32_at(b, 0)).take(MAX_FRAMES);
                self.stacks.insert(id, ids.collect());
            }
            Definition::Module(m) => {
                self.modules.insert(id, m);
            }
            Definition::Caller(c) => {
                let file = self.modules.get(&c.module).map_or(0, |m| m.path);
                let frame = FrameInfo { language: Language::Caller, function: 0, file, line: 0 };
                self.frames.insert(id, frame);
                self.callers.insert(id, c);
            }
            Definition::InModule(m) => {
                self.in_modules.insert(id, m);
            }
            Definition::Native(n) => self.natives.push(n),
            Definition::Captured(c) => {
                self.captured.insert(id, c);
            }
        }
    }

    /// The string with this id; `None` for 0 and ids never defined.
    pub fn string(&self, id: u32) -> Option<&str> {
        self.strings.get(&id).map(String::as_str)
    }

    /// The kernel with this id.
    pub fn kernel(&self, id: u32) -> Option<&KernelInfo> {
        self.kernels.get(&id)
    }

    /// All kernels, by id.
    pub fn kernels(&self) -> impl Iterator<Item = (u32, &KernelInfo)> {
        self.kernels.iter().map(|(id, kernel)| (*id, kernel))
    }

    /// The mangled name of the kernel with this id, or `<unknown>`.
    pub fn kernel_name(&self, id: u32) -> &str {
        self.kernel(id).and_then(|k| self.string(k.name)).unwrap_or("<unknown>")
    }

    /// The track with this id.
    pub fn track(&self, id: u32) -> Option<TrackInfo> {
        self.tracks.get(&id).copied()
    }

    /// The device with this ordinal.
    pub fn device(&self, ordinal: u32) -> Option<&DeviceInfo> {
        self.devices.get(&ordinal)
    }

    /// The frames of the stack with this id, innermost first; nothing for 0, ids never defined and
    /// frames never defined.
    pub fn stack(&self, id: u32) -> impl DoubleEndedIterator<Item = &FrameInfo> {
        self.frames(id).iter().filter_map(|f| self.frames.get(f))
    }

    /// The ids of its frames; of an unknown stack none.
    pub fn frames(&self, stack: u32) -> &[u32] {
        self.stacks.get(&stack).map_or(&[][..], |s| s)
    }

    /// All stacks, by id and with the ids of their frames.
    pub fn stacks(&self) -> impl Iterator<Item = (u32, &[u32])> {
        self.stacks.iter().map(|(id, frames)| (*id, &**frames))
    }

    /// Defines one more stack of these frames, innermost first, in the module that the stack
    /// `module_of` is in; its id.
    pub fn add_stack(&mut self, frames: &[u32], module_of: u32) -> u32 {
        let id = self.stacks.keys().max().map_or(1, |id| id.saturating_add(1));
        self.stacks.insert(id, frames.iter().copied().take(MAX_FRAMES).collect());
        if let Some(module) = self.in_module(module_of) {
            self.in_modules.insert(id, module);
        }
        id
    }

    /// The module of PyTorch's that the stack with this id is in.
    pub fn in_module(&self, stack: u32) -> Option<InModule> {
        self.in_modules.get(&stack).copied()
    }

    /// By which machine code lines come to what they put on the GPU.
    pub fn natives(&self) -> &[NativeStack] {
        &self.natives
    }

    /// The launches that were captured as nodes of CUDA graphs, by id.
    pub fn captured_launches(&self) -> impl Iterator<Item = (u32, &CapturedLaunch)> {
        self.captured.iter().map(|(id, launch)| (*id, launch))
    }

    /// The frame with this id.
    pub fn frame(&self, id: u32) -> Option<&FrameInfo> {
        self.frames.get(&id)
    }

    /// The module with this id.
    pub fn module(&self, id: u32) -> Option<&ModuleInfo> {
        self.modules.get(&id)
    }

    /// The callers of CUDA, by the id of their frame.
    pub fn callers(&self) -> impl Iterator<Item = (u32, &CallerInfo)> {
        self.callers.iter().map(|(id, c)| (*id, c))
    }

    /// An id that no string has, above all that have one.
    pub fn free_string_id(&self) -> u32 {
        self.strings.keys().max().map_or(1, |id| id.saturating_add(1))
    }

    /// Free-form facts of the run (key, value), in the order they were stored; keys like
    /// `cupti.path`.
    pub fn attributes(&self) -> impl Iterator<Item = (&str, &str)> {
        self.attributes.iter().filter_map(|&(k, v)| Some((self.string(k)?, self.string(v)?)))
    }

    /// Puts a fact in front of those that were stored: [`Self::attribute`] gives this one.
    pub fn set_attribute(&mut self, key: &str, value: &str) {
        let [key, value] = [key, value].map(|text| {
            let id = self.free_string_id();
            self.strings.insert(id, text.to_owned());
            id
        });
        self.attributes.insert(0, (key, value));
    }

    /// The fact with this key.
    pub fn attribute(&self, key: &str) -> Option<&str> {
        self.attributes().find(|a| a.0 == key).map(|a| a.1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stack_gives_its_frames_innermost_first() {
        let mut all = Definitions::default();
        let frame = |line| FrameInfo { line, ..FrameInfo::default() };
        all.insert(7, Definition::Frame(frame(88)));
        all.insert(8, Definition::Frame(frame(12)));
        all.insert(9, Definition::Stack(&[7, 0, 0, 0, 5, 0, 0, 0, 8, 0, 0, 0]));
        assert_eq!(all.stack(9).map(|f| f.line).collect::<Vec<_>>(), [88, 12], "frame 5 was never defined");
        assert_eq!(all.stack(0).count() + all.stack(10).count(), 0);
    }
}
