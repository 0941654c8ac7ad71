// SPDX-License-Identifier: Apache-2.0
//! Can the dynamic loader preload a library into this program? Read off the file: nothing is run.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::path::{Path, PathBuf};

use spool::elf;

/// What a file is to the loader.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Program {
    /// Dynamic, of the machine number given, glibc's loader or one we do not know.
    Dynamic {
        /// ELF machine number (`EM_*`).
        machine: u16,
    },
    /// No loader: nothing can be preloaded.
    Static,
    /// The loader is musl's: our library is glibc's.
    Musl,
    /// 32-bit.
    Narrow,
    /// A script; its interpreter and the argument on its first line.
    Script(PathBuf, Option<String>),
    /// Neither ELF nor script: the kernel will say what it thinks of it.
    Other,
}

/// The machine number of programs this command belongs to.
pub(crate) const fn own_machine() -> u16 {
    if cfg!(target_arch = "aarch64") {
        elf::EM_AARCH64
    } else {
        elf::EM_X86_64
    }
}

/// Classifies the file at `path`.
///
/// # Errors
/// Where it cannot be opened or read.
pub(crate) fn classify(path: &Path) -> io::Result<Program> {
    let file = File::open(path)?;
    let mut begin = [0u8; elf::HEAD];
    let n = file.read_at(&mut begin, 0)?;
    if begin.starts_with(b"#!") {
        return Ok(script(&file));
    }
    if n == elf::HEAD && elf::class(&begin) == Some(1) {
        return Ok(Program::Narrow);
    }
    let Some(head) = elf::Head::read(&file) else { return Ok(Program::Other) };
    for program in head.programs(&file) {
        let Some(program) = program else { return Ok(Program::Other) };
        if program.kind == elf::PT_INTERP {
            let mut loader = vec![0u8; program.length.min(4096) as usize];
            file.read_exact_at(&mut loader, program.at)?;
            let musl = String::from_utf8_lossy(&loader).contains("ld-musl");
            return Ok(if musl { Program::Musl } else { Program::Dynamic { machine: head.machine } });
        }
    }
    Ok(Program::Static)
}

/// The `#!` line.
fn script(file: &File) -> Program {
    let mut line = Vec::new();
    // the kernel reads 256 bytes of the line
    if BufReader::new(file.take(256)).read_until(b'\n', &mut line).is_err() {
        return Program::Other;
    }
    let line = String::from_utf8_lossy(&line).into_owned();
    let mut words = line.trim_start_matches("#!").trim().splitn(2, char::is_whitespace);
    match words.next() {
        Some(interpreter) if !interpreter.is_empty() => {
            Program::Script(interpreter.into(), words.next().map(|a| a.trim().to_owned()))
        }
        _ => Program::Other,
    }
}

/// `command` as the kernel would find it: as it stands if it has a slash, else along `path` (the
/// value of PATH).
pub(crate) fn find(command: &str, path: &str) -> Option<PathBuf> {
    if command.contains('/') {
        return Some(PathBuf::from(command)).filter(|p| p.exists());
    }
    path.split(':')
        .map(|folder| Path::new(if folder.is_empty() { "." } else { folder }).join(command))
        .find(|p| p.metadata().is_ok_and(|m| m.is_file() && m.permissions().mode() & 0o111 != 0))
}

/// Follows scripts to the program that will really run: `#!/usr/bin/env python3` to python3.
/// Returns its path and class; at most eight steps, as `#!` may point at a script again.
///
/// # Errors
/// Where a file on the way cannot be read.
pub(crate) fn resolve(command: &Path, path: &str) -> io::Result<(PathBuf, Program)> {
    let mut at = command.to_owned();
    for _ in 0..8 {
        match classify(&at)? {
            Program::Script(interpreter, argument) => {
                let through_env = interpreter.file_name().is_some_and(|n| n == "env");
                let named = argument
                    .as_deref()
                    .and_then(|a| a.split_whitespace().find(|w| !w.starts_with('-') && !w.contains('=')));
                at = match named.filter(|_| through_env).and_then(|n| find(n, path)) {
                    Some(found) => found,
                    None => interpreter,
                };
            }
            class => return Ok((at, class)),
        }
    }
    Ok((at, Program::Other))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn elf(class: u8, loader: Option<&str>) -> Vec<u8> {
        let mut b = vec![0u8; 64 + 56];
        b[..6].copy_from_slice(&[0x7f, b'E', b'L', b'F', class, 1]);
        b[18] = 62;
        b[32] = 64; // program headers at 64, one of 56 bytes
        b[54] = 56;
        b[56] = 1;
        b[64] = 1; // PT_LOAD
        if let Some(l) = loader {
            b[64] = 3;
            b[64 + 8] = 120;
            b[64 + 32] = l.len() as u8;
            b.extend_from_slice(l.as_bytes());
        }
        b
    }

    #[test]
    fn programs_are_told_apart_by_their_headers() {
        let folder = std::env::temp_dir().join(format!("gapprobe-elf-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let file = folder.join("x");
        for (bytes, expected) in [
            (elf(2, Some("/lib64/ld-linux-x86-64.so.2\0")), Program::Dynamic { machine: 62 }),
            (elf(2, Some("/lib/ld-musl-x86_64.so.1\0")), Program::Musl),
            (elf(2, None), Program::Static),
            (elf(1, None), Program::Narrow),
            (elf(2, None)[..63].to_vec(), Program::Other),
            (b"\x7fELF".to_vec(), Program::Other),
            (Vec::new(), Program::Other),
            (b"#!\n".to_vec(), Program::Other),
            (
                b"#! /usr/bin/env -S python3 -u\nx".to_vec(),
                Program::Script("/usr/bin/env".into(), Some("-S python3 -u".into())),
            ),
        ] {
            std::fs::write(&file, &bytes).unwrap();
            assert_eq!(classify(&file).unwrap(), expected, "{bytes:?}");
        }
        std::fs::write(&file, "#!/usr/bin/env sh\n").unwrap();
        let (program, class) = resolve(&file, "/bin:/usr/bin").unwrap();
        assert!(program.ends_with("sh"), "{program:?}");
        assert_eq!(class, Program::Dynamic { machine: own_machine() });
        assert_eq!(find("no such thing", "/bin"), None);
        std::fs::remove_dir_all(&folder).unwrap();
    }
}
