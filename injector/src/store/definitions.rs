// SPDX-License-Identifier: Apache-2.0
// WARM
//! The dictionary: strings, kernels, frames and stacks get an id with their first use and are
//! written to the recording once.

use std::collections::HashMap;

use trace::define::{
    CallerInfo, CapturedLaunch, Definition, DeviceInfo, FrameInfo, InModule, KernelInfo, ModuleInfo,
    NativeStack,
};

use super::Store;

/// What is known so far; bounded by the room for definitions in the image.
#[derive(Default)]
pub(crate) struct Dictionary {
    strings: HashMap<Box<[u8]>, u32>,
    kernels: HashMap<KernelInfo, u32>,
    frames: HashMap<FrameInfo, u32>,
    stacks: HashMap<(Box<[u32]>, Option<InModule>), u32>,
    modules: HashMap<ModuleInfo, u32>,
    callers: HashMap<CallerInfo, u32>,
    natives: HashMap<NativeStack, u32>,
    captured: HashMap<CapturedLaunch, u32>,
    bytes: usize,
    site_bytes: usize,
    last_id: u32,
}

/// Heap the dictionary may take, bytes. Beyond it ids are not remembered: names are `<unknown>`,
/// and counted.
const MOST_BYTES: usize = 12 << 20;

/// What call sites may take of it: programs that make code as they run must not cost kernels their
/// names.
const MOST_SITE_BYTES: usize = MOST_BYTES / 3;

impl Dictionary {
    /// A new id; 0 is never given out.
    pub(crate) fn fresh_id(&mut self) -> u32 {
        self.last_id += 1;
        self.last_id
    }

    /// What call sites have taken, bytes.
    pub(crate) fn site_bytes(&self) -> usize {
        self.site_bytes
    }

    fn has_room(&self) -> bool {
        self.bytes < MOST_BYTES
    }
}

impl Store {
    /// Id of a string, defined with its first use; 0 where there is no room.
    pub(crate) fn string(&mut self, text: &[u8]) -> u32 {
        if text.is_empty() {
            return 0;
        }
        if let Some(&id) = self.dictionary.strings.get(text) {
            return id;
        }
        if !self.dictionary.has_room() {
            crate::platform::losses::add(trace::Loss::DefinitionsFull, 1);
            return 0;
        }
        let id = self.dictionary.fresh_id();
        self.define(id, Definition::String(text));
        self.dictionary.bytes += text.len() + 64;
        self.dictionary.strings.insert(text.into(), id);
        id
    }

    /// Id of a kernel with its launch configuration; 0 where there is no room.
    pub(crate) fn kernel(&mut self, info: KernelInfo) -> u32 {
        if let Some(&id) = self.dictionary.kernels.get(&info) {
            return id;
        }
        if info.captured != 0 && !self.has_room_for_sites() {
            crate::platform::losses::add(trace::Loss::CallerDropped, 1);
            return self.kernel(KernelInfo { captured: 0, ..info });
        }
        if !self.dictionary.has_room() {
            crate::platform::losses::add(trace::Loss::DefinitionsFull, 1);
            return 0;
        }
        let id = self.dictionary.fresh_id();
        self.define(id, Definition::Kernel(info));
        self.dictionary.bytes += 96;
        self.dictionary.site_bytes += if info.captured == 0 { 0 } else { 96 };
        self.dictionary.kernels.insert(info, id);
        id
    }

    /// Id of a string of a call site; `None` where there is no room.
    pub(crate) fn site_string(&mut self, text: &[u8]) -> Option<u32> {
        if !self.has_room_for_sites() {
            return None;
        }
        let before = self.dictionary.bytes;
        let id = self.string(text);
        self.dictionary.site_bytes += self.dictionary.bytes - before;
        (id != 0).then_some(id)
    }

    fn has_room_for_sites(&self) -> bool {
        self.dictionary.has_room() && self.dictionary.site_bytes < MOST_SITE_BYTES
    }

    /// Id of a frame; `None` where there is no room.
    pub(crate) fn frame(&mut self, info: FrameInfo) -> Option<u32> {
        if let Some(&id) = self.dictionary.frames.get(&info) {
            return Some(id);
        }
        let id = self.site_definition(Definition::Frame(info))?;
        self.dictionary.frames.insert(info, id);
        Some(id)
    }

    /// Id of a module; `None` where there is no room.
    pub(crate) fn module(&mut self, info: ModuleInfo) -> Option<u32> {
        if let Some(&id) = self.dictionary.modules.get(&info) {
            return Some(id);
        }
        let id = self.site_definition(Definition::Module(info))?;
        self.dictionary.modules.insert(info, id);
        Some(id)
    }

    /// Id of a caller, as of a frame; `None` where there is no room.
    pub(crate) fn caller(&mut self, info: CallerInfo) -> Option<u32> {
        if let Some(&id) = self.dictionary.callers.get(&info) {
            return Some(id);
        }
        let id = self.site_definition(Definition::Caller(info))?;
        self.dictionary.callers.insert(info, id);
        Some(id)
    }

    /// Id of what is known of a launch's way; `None` where there is no room.
    pub(crate) fn native(&mut self, info: NativeStack) -> Option<u32> {
        if let Some(&id) = self.dictionary.natives.get(&info) {
            return Some(id);
        }
        let id = self.site_definition(Definition::Native(info))?;
        self.dictionary.natives.insert(info, id);
        Some(id)
    }

    /// Id of launches that were captured alike; `None` where there is no room.
    pub(crate) fn captured(&mut self, info: CapturedLaunch) -> Option<u32> {
        if let Some(&id) = self.dictionary.captured.get(&info) {
            return Some(id);
        }
        let id = self.site_definition(Definition::Captured(info))?;
        self.dictionary.captured.insert(info, id);
        Some(id)
    }

    /// Defines something small of a call site.
    fn site_definition(&mut self, definition: Definition<'_>) -> Option<u32> {
        if !self.has_room_for_sites() {
            return None;
        }
        let id = self.dictionary.fresh_id();
        self.define(id, definition);
        self.dictionary.bytes += 64;
        self.dictionary.site_bytes += 64;
        Some(id)
    }

    /// Takes the frames of a stack back: calls that have the id already have none.
    pub(crate) fn retract_stack(&mut self, id: u32) {
        self.dictionary.stacks.retain(|_, known| *known != id);
        self.define(id, Definition::Stack(&[]));
    }

    /// Id of a stack of frames, innermost first, in this module of PyTorch's: `id` where that was
    /// given out before; `None` where there is no room.
    pub(crate) fn stack(&mut self, frames: &[u32], module: Option<InModule>, id: Option<u32>) -> Option<u32> {
        let key = (frames.into(), module);
        if let (Some(&known), None) = (self.dictionary.stacks.get(&key), id) {
            return Some(known);
        }
        if !self.has_room_for_sites() {
            return None;
        }
        let id = id.unwrap_or_else(|| self.dictionary.fresh_id());
        let bytes: Vec<u8> = frames.iter().flat_map(|f| f.to_le_bytes()).collect();
        self.define(id, Definition::Stack(&bytes));
        self.dictionary.bytes += bytes.len() + 64;
        self.dictionary.site_bytes += bytes.len() + 64;
        if let Some(module) = module {
            self.define(id, Definition::InModule(module));
            self.dictionary.bytes += 16;
            self.dictionary.site_bytes += 16;
        }
        self.dictionary.stacks.insert(key, id);
        Some(id)
    }

    /// Describes a device.
    pub(crate) fn device(&mut self, ordinal: u32, info: DeviceInfo) {
        self.define(ordinal, Definition::Device(info));
    }

    /// A fact of the run.
    pub(crate) fn attribute(&mut self, key: &str, value: &str) {
        let (k, v) = (self.string(key.as_bytes()), self.string(value.as_bytes()));
        self.define(0, Definition::Attribute(k, v));
    }
}

/// The name of a thread of ours (`/proc/self/task/TID/comm`); empty where it is gone.
pub(crate) fn thread_name(tid: u32) -> Vec<u8> {
    let mut name = std::fs::read(format!("/proc/self/task/{tid}/comm")).unwrap_or_default();
    while name.last() == Some(&b'\n') {
        name.pop();
    }
    name
}
