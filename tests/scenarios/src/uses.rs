// SPDX-License-Identifier: Apache-2.0
//! Which module of a crate uses which: read from its sources, without compiling them. A path is
//! followed through `super::`, `self::`, names that a `use` brought in, and re-exports, to the
//! module that defines what it names. Tests inside the sources do not count.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use syn::visit::{self, Visit};

/// A module by its path from the root of the crate; the root itself is empty.
pub type Module = Vec<String>;

/// The modules of a crate and what each takes from which other one.
pub struct Crate {
    files: BTreeMap<Module, PathBuf>,
    /// From, to: the names that are taken.
    uses: BTreeMap<(Module, Module), BTreeSet<String>>,
}

/// What one file says.
#[derive(Default)]
struct Source {
    /// Each path in it, as written.
    paths: Vec<Vec<String>>,
    /// What a `use` brought in: its name here, and the path as written.
    names: BTreeMap<String, Vec<String>>,
}

impl Crate {
    /// Reads all files under `src`. `also`: roots that name this crate, besides `crate`.
    pub fn read(src: &Path, also: &[&str]) -> Crate {
        let mut files = BTreeMap::new();
        find(src, &mut Vec::new(), &mut files);
        let read = |file: &PathBuf| {
            let text = std::fs::read_to_string(file).unwrap_or_else(|e| panic!("{}: {e}", file.display()));
            let parsed = syn::parse_file(&text).unwrap_or_else(|e| panic!("{}: {e}", file.display()));
            let mut source = Source::default();
            source.visit_file(&parsed);
            source
        };
        let sources: BTreeMap<Module, Source> = files.iter().map(|(m, f)| (m.clone(), read(f))).collect();
        let resolver = Resolver { files: &files, sources: &sources, also };
        let mut uses: BTreeMap<(Module, Module), BTreeSet<String>> = BTreeMap::new();
        for (module, source) in &sources {
            for path in source.paths.iter().chain(source.names.values()) {
                let Some((to, name)) = resolver.absolute(module, path).map(|p| resolver.follow(p, 0)) else {
                    continue;
                };
                if to != *module {
                    uses.entry((module.clone(), to)).or_default().insert(name);
                }
            }
        }
        Crate { files, uses }
    }

    /// The rooms: modules right under this one (`""`: the root), by name.
    pub fn rooms(&self, inside: &str) -> BTreeSet<&str> {
        self.files.keys().filter_map(|m| room(m, inside)).collect()
    }

    /// Arrows from room to room inside of a module: which module takes what from which. What that
    /// module itself takes is no arrow: it has all rooms in it.
    pub fn arrows(&self, inside: &str) -> BTreeMap<(&str, &str), Vec<String>> {
        let mut found: BTreeMap<(&str, &str), Vec<String>> = BTreeMap::new();
        for ((from, to), names) in &self.uses {
            if let (Some(a), Some(b)) = (room(from, inside), room(to, inside)) {
                if a != b {
                    let names: Vec<&str> = names.iter().map(String::as_str).collect();
                    let one = format!("{} -> {}: {}", from.join("/"), to.join("/"), names.join(", "));
                    found.entry((a, b)).or_default().push(one);
                }
            }
        }
        found
    }
}

/// The room that a module lies in.
fn room<'a>(module: &'a Module, inside: &str) -> Option<&'a str> {
    match inside {
        "" => module.first(),
        _ => module.get(1).filter(|_| module.first().is_some_and(|first| first == inside)),
    }
    .map(String::as_str)
}

struct Resolver<'a> {
    files: &'a BTreeMap<Module, PathBuf>,
    sources: &'a BTreeMap<Module, Source>,
    also: &'a [&'a str],
}

impl Resolver<'_> {
    /// From the crate's root; `None` where it is another crate's, or a name of the language.
    fn absolute(&self, module: &Module, path: &[String]) -> Option<Vec<String>> {
        let (first, rest) = path.split_first()?;
        match first.as_str() {
            "crate" => Some(rest.to_vec()),
            "self" => Some([module, rest].concat()),
            "super" => {
                let up = path.iter().take_while(|s| *s == "super").count();
                let base = module.get(..module.len().checked_sub(up)?)?;
                Some([base, path.get(up..)?].concat())
            }
            name if self.also.contains(&name) => Some(rest.to_vec()),
            name => {
                let child = [module.as_slice(), &[name.to_owned()]].concat();
                self.files.contains_key(&child).then(|| [module.as_slice(), path].concat())
            }
        }
    }

    /// The module that defines what an absolute path names, and that name.
    fn follow(&self, path: Vec<String>, depth: usize) -> (Module, String) {
        const DEEPEST: usize = 16;
        let inside =
            (0..=path.len()).rev().find(|&n| path.get(..n).is_some_and(|p| self.files.contains_key(p)));
        let (module, rest) = path.split_at(inside.unwrap_or(0));
        let Some((name, behind)) = rest.split_first() else {
            return (module.to_vec(), "(module)".to_owned());
        };
        let again = self.sources.get(module).and_then(|s| s.names.get(name));
        let again = again.filter(|_| depth < DEEPEST);
        match again.and_then(|p| self.absolute(&module.to_vec(), p)) {
            Some(further) => self.follow([further.as_slice(), behind].concat(), depth + 1),
            None => (module.to_vec(), name.clone()),
        }
    }
}

/// Files of modules under a folder; not those of tests.
fn find(folder: &Path, module: &mut Module, files: &mut BTreeMap<Module, PathBuf>) {
    let entries = std::fs::read_dir(folder).unwrap_or_else(|e| panic!("{}: {e}", folder.display()));
    for path in entries.flatten().map(|e| e.path()) {
        let name = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        if name == "tests" {
            continue;
        }
        if path.is_dir() {
            module.push(name);
            find(&path, module, files);
            module.pop();
        } else if path.extension().is_some_and(|e| e == "rs") {
            let is_root = ["mod", "lib", "main"].contains(&name.as_str());
            let own = if is_root { module.clone() } else { [module.as_slice(), &[name]].concat() };
            // (of a library and a command with one root, the library's)
            let is_mains = path.ends_with("main.rs");
            if !is_mains || !files.contains_key(&own) {
                files.insert(own, path);
            }
        }
    }
}

fn is_test(attributes: &[syn::Attribute]) -> bool {
    attributes.iter().any(|a| {
        let syn::Meta::List(list) = &a.meta else { return false };
        list.path.is_ident("cfg")
            && list.tokens.to_string().split(|c: char| !c.is_alphanumeric()).any(|w| w == "test")
    })
}

impl<'ast> Visit<'ast> for Source {
    fn visit_item(&mut self, item: &'ast syn::Item) {
        let attributes: &[syn::Attribute] = match item {
            syn::Item::Mod(m) => &m.attrs,
            syn::Item::Use(u) => &u.attrs,
            syn::Item::Fn(f) => &f.attrs,
            syn::Item::Impl(i) => &i.attrs,
            _ => &[],
        };
        if !is_test(attributes) {
            visit::visit_item(self, item);
        }
    }

    fn visit_item_use(&mut self, item: &'ast syn::ItemUse) {
        self.tree(&item.tree, &mut Vec::new());
    }

    fn visit_path(&mut self, path: &'ast syn::Path) {
        self.paths.push(path.segments.iter().map(|s| s.ident.to_string()).collect());
        visit::visit_path(self, path);
    }

    /// What stands in a macro's arguments is not parsed: paths are names with `::` between them.
    fn visit_macro(&mut self, item: &'ast syn::Macro) {
        visit::visit_macro(self, item);
        let text = item.tokens.to_string().replace(" :: ", "::");
        let words = text.split(|c: char| !(c.is_alphanumeric() || c == '_' || c == ':'));
        for word in words.filter(|w| w.contains("::")) {
            self.paths.push(word.split("::").map(str::to_owned).collect());
        }
    }
}

impl Source {
    fn tree(&mut self, tree: &syn::UseTree, front: &mut Vec<String>) {
        match tree {
            syn::UseTree::Path(p) => {
                front.push(p.ident.to_string());
                self.tree(&p.tree, front);
                front.pop();
            }
            syn::UseTree::Group(g) => g.items.iter().for_each(|t| self.tree(t, front)),
            syn::UseTree::Name(n) if n.ident == "self" => self.name(front.last().cloned(), front.clone()),
            syn::UseTree::Name(n) => {
                let name = n.ident.to_string();
                self.name(Some(name.clone()), [front.as_slice(), &[name]].concat());
            }
            syn::UseTree::Rename(r) => {
                let path = match r.ident == "self" {
                    true => front.clone(),
                    false => [front.as_slice(), &[r.ident.to_string()]].concat(),
                };
                self.name(Some(r.rename.to_string()), path);
            }
            syn::UseTree::Glob(_) => self.paths.push(front.clone()),
        }
    }

    fn name(&mut self, name: Option<String>, path: Vec<String>) {
        // `use analyze::analyze` names a child of this module, no name of its own
        if let Some(name) = name.filter(|n| path.first() != Some(n)) {
            self.names.insert(name, path);
        } else {
            self.paths.push(path);
        }
    }
}
