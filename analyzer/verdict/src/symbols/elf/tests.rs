// SPDX-License-Identifier: Apache-2.0
use std::path::PathBuf;
use std::time::Duration;

use super::*;

/// A file of the null section, a symbol table, its names, a note, in this order; removed in the
/// end. Symbols: name, kind, begin, length.
struct Image {
    path: PathBuf,
}

const NAMES: u64 = 64 + 4 * 64;

impl Image {
    /// The symbols lie at the end of a table of `room` bytes, the rest of which is a hole in the
    /// file.
    fn new(name: &str, room: u64, symbols: &[(&str, u8, u64, u64)]) -> Image {
        let (mut names, mut table) = (vec![0u8], Vec::new());
        for (name, kind, begins, length) in symbols {
            table.extend_from_slice(&(names.len() as u32).to_le_bytes());
            table.extend_from_slice(&[*kind, 0, 1, 0]);
            table.extend_from_slice(&begins.to_le_bytes());
            table.extend_from_slice(&length.to_le_bytes());
            names.extend_from_slice(name.as_bytes());
            names.push(0);
        }
        let note = [4u32, 3, 3].map(u32::to_le_bytes).concat();
        let note = [&note[..], b"GNU\0", &[0xab, 0xcd, 0xef, 0]].concat();
        let notes_at = NAMES + names.len() as u64;
        let table_at = notes_at + note.len() as u64;
        let section = |kind: u32, at: u64, length: u64, link: u32| {
            let mut bytes = [0; 64];
            bytes[4..8].copy_from_slice(&kind.to_le_bytes());
            bytes[24..32].copy_from_slice(&at.to_le_bytes());
            bytes[32..40].copy_from_slice(&length.to_le_bytes());
            bytes[40..44].copy_from_slice(&link.to_le_bytes());
            bytes
        };
        let mut bytes = vec![0; 64];
        bytes[..6].copy_from_slice(b"\x7fELF\x02\x01");
        bytes[40..48].copy_from_slice(&64u64.to_le_bytes());
        bytes[58..60].copy_from_slice(&64u16.to_le_bytes());
        bytes[60..62].copy_from_slice(&4u16.to_le_bytes());
        bytes.extend_from_slice(&section(0, 0, 0, 0));
        bytes.extend_from_slice(&section(SHT_SYMTAB, table_at, room, 2));
        bytes.extend_from_slice(&section(3, NAMES, names.len() as u64, 0));
        bytes.extend_from_slice(&section(SHT_NOTE, notes_at, note.len() as u64, 0));
        bytes.extend_from_slice(&names);
        bytes.extend_from_slice(&note);
        let path = std::env::temp_dir().join(format!("gapprobe-elf-{}-{name}", std::process::id()));
        std::fs::write(&path, bytes).expect("a file");
        let file = File::options().write(true).open(&path).expect("the file");
        file.write_all_at(&table, table_at + room - table.len() as u64).expect("the symbols");
        Image { path }
    }

    fn open(&self) -> Elf {
        Elf::open(&self.path).expect("a file of this form")
    }
}

impl Drop for Image {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.path);
    }
}

fn names(found: &[Option<Symbol>]) -> Vec<&str> {
    found.iter().map(|s| s.as_ref().map_or("-", |s| &s.name)).collect()
}

#[test]
fn the_innermost_function_of_several_and_the_first_of_two() {
    let symbols = [
        ("outer", STT_FUNC, 100, 100),
        ("inner", STT_FUNC, 120, 10),
        ("inner_too", STT_FUNC, 120, 10),
        ("smaller", STT_FUNC, 120, 5),
        ("data", 1, 120, 2),
        ("chosen", 0x10 | STT_GNU_IFUNC, 300, 1),
        ("empty", STT_FUNC, 400, 0),
    ];
    let image = Image::new("inner", 24 * 7, &symbols);
    let mut elf = image.open();
    assert_eq!(elf.build_id(), [0xab, 0xcd, 0xef]);
    let found = elf.functions(&[300, 99, 100, 121, 127, 130, 199, 200, 301, 400, u64::MAX], Limit::NONE);
    let expected = ["chosen", "-", "outer", "smaller", "inner", "outer", "outer", "-", "-", "-", "-"];
    assert_eq!(names(&found), expected);
    assert_eq!(found[3].as_ref().map(|s| s.begins), Some(120));
}

#[test]
fn a_table_beyond_the_limit_is_not_read_and_one_within_it_is_read_once() {
    const MANY: u64 = 3 << 30; // of a library of that size
    let giant = Image::new("giant", MANY - MANY % 24, &[("step", STT_FUNC, 100, 10)]);
    let mut elf = giant.open();
    let limit = Limit { bytes: 32 << 20, until: None };
    assert_eq!(names(&elf.functions(&[105], limit)), ["-"]);
    assert!(elf.read < 1024, "{} bytes read", elf.read);

    let room = (32 << 20) - (32 << 20) % 24;
    let large = Image::new("large", room, &[("step", STT_FUNC, 100, 10)]);
    let mut elf = large.open();
    let begun = Instant::now();
    let many: Vec<u64> = (100..110).collect();
    assert_eq!(names(&elf.functions(&many, limit)), ["step"; 10]);
    println!("{} bytes in {:?}", elf.read, begun.elapsed());
    assert!(elf.read >= room && elf.read < room + 8192, "{} bytes read", elf.read);
}

/// Around an address as many functions are kept as there is room for; what they answer is what the
/// tables say, and what they do not cover is not answered.
#[test]
fn functions_nearby_answer_as_the_tables_do() {
    let names_of: Vec<String> = (0..50_000).map(|n| format!("f{n}")).collect();
    let mut symbols: Vec<(&str, u8, u64, u64)> = names_of
        .iter()
        .zip(0..)
        .map(|(name, n)| (name.as_str(), STT_FUNC, 1000 + (n * 7919 % 50_000) * 16, 12))
        .collect();
    symbols.push(("around_all", STT_FUNC, 500, 1_000_000));
    let image = Image::new("nearby", symbols.len() as u64 * 24, &symbols);
    let mut elf = image.open();
    for around in [1000, 400_005, 700_000, 2_000_000] {
        let nearby = elf.nearby(around, Limit::NONE).expect("time");
        assert!(nearby.functions.len() <= MOST_NEARBY && nearby.functions.len() > MOST_NEARBY / 4);
        let addresses: Vec<u64> = (0..2000).map(|n| n * 523).filter(|a| nearby.covers(*a)).collect();
        assert!((300..1900).contains(&addresses.len()), "{around}: {} covered", addresses.len());
        let before = elf.read;
        let found: Vec<Option<Symbol>> = addresses.iter().map(|a| elf.at(*a, &nearby)).collect();
        assert!(elf.read - before <= 256 * addresses.len() as u64, "only names are read");
        assert_eq!(found, elf.functions(&addresses, Limit::NONE), "{around}");
    }
}

#[test]
fn however_many_functions_are_at_one_address_few_are_kept() {
    let mut symbols = vec![("same", STT_FUNC, 100, 10); 300_000];
    symbols.insert(200_000, ("inner", STT_FUNC, 104, 2));
    let image = Image::new("same", symbols.len() as u64 * 24, &symbols);
    let mut elf = image.open();
    let nearby = elf.nearby(105, Limit::NONE).expect("time");
    assert!(nearby.functions.len() <= MOST_NEARBY && !nearby.covers(106));
    assert_eq!(elf.at(105, &nearby).map(|s| s.name).as_deref(), Some("inner"));
    let beside = elf.nearby(90, Limit::NONE).expect("time");
    assert!(beside.functions.len() <= MOST_NEARBY && beside.covers(98) && !beside.covers(100));
}

#[test]
fn without_time_nothing_is_known() {
    let room = (1 << 30) - (1 << 30) % 24;
    let image = Image::new("late", room, &[("step", STT_FUNC, 100, 10)]);
    let mut elf = image.open();
    let until = Some(Instant::now() + Duration::from_millis(2));
    assert_eq!(names(&elf.functions(&[105], Limit { bytes: u64::MAX, until })), ["-"]);
    assert!(elf.nearby(105, Limit { bytes: u64::MAX, until }).is_none());
    assert!(elf.read < room / 2, "{} bytes read", elf.read);
}

/// Whatever a file says of itself: no panic, no more memory than a piece.
#[test]
fn no_bytes_make_it_panic() {
    let symbols = [("outer", STT_FUNC, 100, 100), ("inner", STT_FUNC, 120, 10)];
    let image = Image::new("bytes", 48, &symbols);
    let whole = std::fs::read(&image.path).expect("its bytes");
    let mut state = 7u64;
    let mut random = || {
        state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (state >> 33) as usize
    };
    let mut opened = 0;
    for _ in 0..1000 {
        let mut bytes = whole.clone();
        for _ in 0..1 + random() % 6 {
            let (at, value) = (random() % bytes.len(), [0, 1, 0x7f, 0xff, random() as u8][random() % 5]);
            bytes[at..].iter_mut().take(1 + random() % 8).for_each(|b| *b = value);
        }
        bytes.truncate(bytes.len() - (random() % 4 / 3) * (random() % bytes.len()));
        std::fs::write(&image.path, &bytes).expect("a file");
        let Some(mut elf) = Elf::open(&image.path) else { continue };
        opened += 1;
        elf.build_id();
        let limit = Limit { bytes: 1 << 30, until: None };
        elf.functions(&[0, 105, 125, u64::MAX], limit);
        elf.nearby(105, limit).and_then(|nearby| elf.at(125, &nearby));
    }
    assert!(opened > 200, "{opened}");
}
