// SPDX-License-Identifier: Apache-2.0
//! What metrics call a run: the same on all ranks, so that their series are found by it.

use trace::define::{DIRECTORY, JOB, RUN, START};
use trace::Definitions;
use trace::Header;

/// Characters of a program's name, and of what tells two of its runs apart.
const MAX_NAME: usize = 40;
const ID: usize = 8;

/// The job as batch system or launcher call it; else the program, and the beginning of the id of
/// its `gapprobe run`, or of a hash of what was started: `train.py-3f2a9c41`.
pub(super) fn run_name(header: &Header, definitions: &Definitions) -> String {
    let attribute = |key| definitions.attribute(key).filter(|text| !text.is_empty());
    if let Some(job) = attribute(JOB) {
        return job.to_owned();
    }
    let id = match (attribute(RUN), header.rank) {
        (Some(run), _) => run.to_owned(),
        (None, 0) => attribute(START).unwrap_or("").to_owned(),
        // (START is another one on each rank)
        (None, _) => hash(&[&header.command, attribute(DIRECTORY).unwrap_or("")]),
    };
    let (name, id) = (program(&header.command), id.chars().take(ID).collect());
    let name: String = name.chars().take(MAX_NAME).collect();
    [name, id].into_iter().filter(|part: &String| !part.is_empty()).collect::<Vec<_>>().join("-")
}

/// A path's last part.
fn file(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or(path)
}

/// The file that a command line runs; of Python the script or module.
fn program(command: &str) -> &str {
    let mut words = command.split(' ').filter(|word| !word.is_empty());
    let first = words.next().map_or("", file);
    if !first.starts_with("python") {
        return first;
    }
    while let Some(word) = words.next() {
        match word {
            "-c" => return first,
            "-m" => return words.next().unwrap_or(first),
            "-W" | "-X" => _ = words.next(),
            option if option.starts_with('-') => {}
            script => return file(script),
        }
    }
    first
}

/// FNV-1a, 16 hexadecimal digits: the same on every node.
fn hash(parts: &[&str]) -> String {
    let bytes = parts.iter().flat_map(|part| part.bytes().chain([0]));
    let of = |hash: u64, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
    format!("{:016x}", bytes.fold(0xcbf2_9ce4_8422_2325, of))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_is_the_file_that_runs_and_of_python_the_script_or_module() {
        for (command, wanted) in [
            ("python train.py --lr 0.1", "train.py"),
            ("/usr/bin/python3.12 -u -X faulthandler /data/me/train.py a.py", "train.py"),
            ("python -m vllm.entrypoints.api_server --port 1", "vllm.entrypoints.api_server"),
            ("python3 -c import torch; torch.ones(1).cuda()", "python3"),
            ("python3", "python3"),
            ("./build/simulate -n 5", "simulate"),
            ("", ""),
        ] {
            assert_eq!(program(command), wanted, "{command}");
        }
    }

    fn name(command: &str, rank: u32, attributes: &[(&str, &str)]) -> String {
        let mut b = trace::build::Builder::new();
        (b.header.command, b.header.rank) = (command.into(), rank);
        attributes.iter().for_each(|(key, value)| b.attribute(key, value));
        let recording = trace::Recording::open(b.finish().as_slice()).unwrap();
        run_name(&recording.header, &recording.definitions)
    }

    #[test]
    fn a_run_is_named_by_its_job_else_by_its_program_and_what_tells_two_of_it_apart() {
        let start = (START, "00112233445566ff");
        let run = (RUN, "3f2a9c41deadbeef");
        assert_eq!(name("python train.py", 1, &[(JOB, "4711"), run, start]), "4711");
        assert_eq!(name("python train.py", 1, &[run, start]), "train.py-3f2a9c41");
        assert_eq!(name("python train.py", 0, &[start]), "train.py-00112233");
        assert_eq!(name("", 0, &[start]), "00112233");
        assert_eq!(name("simulate", 0, &[]), "simulate");
        let long = name(&"\u{e4}".repeat(200), 0, &[start]);
        assert_eq!(long.chars().count(), MAX_NAME + 1 + ID);
    }

    #[test]
    fn all_ranks_of_a_run_have_one_name_and_another_run_has_another() {
        let of = |command, rank: u32, directory| {
            name(command, rank, &[(START, &format!("{rank:016x}")), (DIRECTORY, directory)])
        };
        let first = of("python -u train.py --lr 1", 1, "/data/a");
        assert!(first.starts_with("train.py-") && first.len() == "train.py-".len() + ID, "{first}");
        assert_eq!(of("python -u train.py --lr 1", 2, "/data/a"), first);
        assert_ne!(of("python -u train.py --lr 2", 1, "/data/a"), first);
        assert_ne!(of("python -u train.py --lr 1", 1, "/data/b"), first);
    }
}
