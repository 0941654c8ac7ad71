// SPDX-License-Identifier: Apache-2.0
//! Purpose: a program that includes include/gapprobe.h may call each of its functions by either of
//! its names: with the library in the process they reach it, without it they do nothing. In C and
//! C++, inlined or not, position-independent or not, through pointers, from two files of one
//! program.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use gapprobe_scenarios::built::{built, root};

/// What calls all of them; its output says what came back from the library.
const CALLS: &str = r#"
#include "gapprobe.h"
#include <stdio.h>
#ifdef __cplusplus
extern "C"
#endif
int elsewhere(void);

int main(void) {
    void (*pointer)(void) = gapprobe_step;
    setvbuf(stdout, 0, _IONBF, 0);
    printf("version %d %d %d\n", gapprobe_version(), gp_version(), elsewhere());
    gapprobe_step(), gp_step(), pointer();
    gapprobe_range_push("range"), gapprobe_range_pop();
    gp_range_push("range"), gp_range_pop();
    gapprobe_capture(0), gp_capture(1);
    puts("end");
    return 0;
}
"#;

/// The same program's second file.
const ELSEWHERE: &str = r#"
#include "gapprobe.h"
#ifdef __cplusplus
extern "C"
#endif
int elsewhere(void) {
    gapprobe_step();
    return gapprobe_version();
}
"#;

/// Stands for the library: says what reached it.
const LIBRARY: &str = r#"
#include <stdio.h>
void gapprobe_step(void) { puts("step"); }
void gapprobe_range_push(const char *name) { puts(name); }
void gapprobe_range_pop(void) { puts("pop"); }
void gapprobe_capture(int on) { puts(on ? "on" : "off"); }
int gapprobe_version(void) { return 7; }
"#;

struct Folder(PathBuf);

impl Folder {
    fn new() -> Folder {
        let folder = built().scratch.join(format!("header-{}", std::process::id()));
        std::fs::create_dir_all(&folder).expect("a folder");
        Folder(folder)
    }

    fn file(&self, name: &str, text: &str) -> PathBuf {
        let path = self.0.join(name);
        std::fs::write(&path, text).expect("a source");
        path
    }

    fn compile(&self, compiler: &str, flags: &[&str], sources: &[&Path], out: &str) -> PathBuf {
        let path = self.0.join(out);
        let mut command = Command::new(compiler);
        command.args(["-Wall", "-Wextra", "-Werror", "-I"]).arg(root().join("include"));
        let done = command.args(flags).args(sources).arg("-o").arg(&path).output().expect("a compiler");
        assert!(done.status.success(), "{command:?}\n{}", String::from_utf8_lossy(&done.stderr));
        path
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0); // a leftover harms nobody
    }
}

/// How it ended and what it printed.
fn run(program: &Path, preload: Option<&Path>) -> (Option<i32>, String) {
    let mut command = Command::new(program);
    command.env_remove("LD_PRELOAD").stdin(Stdio::null()).stderr(Stdio::null());
    if let Some(library) = preload {
        command.env("LD_PRELOAD", library);
    }
    let done = command.output().expect("it starts");
    (done.status.code(), String::from_utf8_lossy(&done.stdout).into_owned())
}

#[test]
fn every_name_reaches_the_library_and_does_nothing_without_it() {
    let folder = Folder::new();
    let stand_in =
        folder.compile("gcc", &["-shared", "-fPIC"], &[&folder.file("stand_in.c", LIBRARY)], "stand_in.so");
    let alone = (Some(0), "version 0 0 0\nend\n".to_owned());
    let ours = (Some(0), "version 100 100 100\nend\n".to_owned());
    let reached = "step\nversion 7 7 7\nstep\nstep\nstep\nrange\npop\nrange\npop\noff\non\nend\n".to_owned();
    for (compiler, extension) in [("gcc", "c"), ("g++", "cpp")] {
        let calls = folder.file(&format!("calls.{extension}"), CALLS);
        let elsewhere = folder.file(&format!("elsewhere.{extension}"), ELSEWHERE);
        for how in [
            &["-O0", "-fPIE", "-pie"][..],
            &["-O2", "-fPIE", "-pie"],
            &["-O0", "-fno-pie", "-no-pie"],
            &["-O2", "-fno-pie", "-no-pie"],
            &["-O2", "-flto"],
        ] {
            let program = folder.compile(compiler, how, &[&calls, &elsewhere], "calls");
            assert_eq!(run(&program, None), alone, "{compiler} {how:?}, without the library");
            assert_eq!(
                run(&program, Some(&stand_in)),
                (Some(0), reached.clone()),
                "{compiler} {how:?}, with one"
            );
            assert_eq!(run(&program, Some(&built().library)), ours, "{compiler} {how:?}, with the library");
        }
    }
}
