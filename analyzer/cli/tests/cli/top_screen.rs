// SPDX-License-Identifier: Apache-2.0
//! `top` on a terminal: it draws each look at once over the one before, follows the size of the
//! window, ends with `q` or a signal, and gives the terminal back. What is in the table:
//! `watched.rs`.

use std::fs::File;
use std::io::{Read, Write};
use std::os::unix::process::CommandExt;
use std::process::Stdio;

use crate::beating::Beating;
use crate::place::Place;
use crate::terminal::{resize, terminal};

const FRAME: (&str, &str) = ("\x1b[?2026h", "\x1b[?2026l");

/// Shows `top` on a terminal of so many columns, with a look `every` so often, until `seen` is true
/// of what it has shown; does `end`, and gives all it wrote.
#[expect(unsafe_code, reason = "what makes a terminal a process's own is libc's")]
fn top(
    (columns, every): (u16, &str),
    mut seen: impl FnMut(&str, &File) -> bool,
    end: impl FnOnce(&mut File, u32),
) -> (String, Option<i32>) {
    let place = Place::new(&format!("top-terminal-{columns}"));
    let _beating =
        Beating::new(&place, |b| b.header.command = format!("python \x1b[31m{}.py", "long_name_".repeat(40)));
    let (mut ours, theirs) = terminal(columns);
    let mut command = place.gapprobe(&["top", "--every", every, "--last", "1s"]);
    command.stdin(Stdio::from(theirs.try_clone().unwrap())).stdout(Stdio::from(theirs));
    // its own terminal: else nobody tells it that the window has another size
    let own = || {
        // SAFETY: setsid takes nothing.
        unsafe { libc::setsid() };
        // SAFETY: TIOCSCTTY takes a number.
        match unsafe { libc::ioctl(0, libc::TIOCSCTTY, 0) } {
            0 => Ok(()),
            _ => Err(std::io::Error::last_os_error()),
        }
    };
    // SAFETY: both calls are async-signal-safe.
    unsafe { command.pre_exec(own) };
    let mut child = command.spawn().unwrap();
    drop(command); // it holds the terminal open
    let mut keys = ours.try_clone().unwrap();
    let (mut shown, mut end) = (Vec::new(), Some(end));
    let mut bytes = [0; 4096];
    // EIO: the other side is closed
    while let Some(n) = ours.read(&mut bytes).ok().filter(|n| *n > 0) {
        shown.extend_from_slice(&bytes[..n]);
        if seen(&String::from_utf8_lossy(&shown), &keys) {
            if let Some(end) = end.take() {
                end(&mut keys, child.id());
            }
        }
    }
    (String::from_utf8(shown).unwrap(), child.wait().unwrap().code())
}

fn q(keys: &mut File, _: u32) {
    keys.write_all(b"q").unwrap();
}

/// The frames that were drawn, and that nothing was drawn outside of them.
fn frames(shown: &str) -> Vec<&str> {
    let mut parts = shown.split(FRAME.0);
    let before = parts.next().unwrap();
    assert!(!before.contains("gapprobe"), "{before:?}");
    parts
        .map(|part| {
            let (frame, after) =
                part.split_once(FRAME.1).unwrap_or_else(|| panic!("a frame without end: {part:?}"));
            assert!(!after.contains("gapprobe") && !after.contains("VERDICT"), "{after:?}");
            frame
        })
        .collect()
}

/// Lines of a frame: each is placed by its row and column.
fn lines(frame: &str) -> Vec<String> {
    let text =
        frame.split("\x1b[").skip(1).filter_map(|part| part.split_once('H')).filter(|(place, _)| {
            place.bytes().all(|b| b.is_ascii_digit() || b == b';') && place.ends_with(";1")
        });
    text.map(|(_, line)| line.to_owned()).collect()
}

fn three_frames(shown: &str, _: &File) -> bool {
    shown.matches(FRAME.1).count() >= 3
}

#[test]
#[expect(unsafe_code, reason = "kill is libc's")]
fn top_draws_again_and_again_until_q_or_a_signal_and_gives_the_terminal_back() {
    type End = fn(&mut File, u32);
    let interrupt: End = |keys, _| keys.write_all(b"\x03").unwrap();
    let terminate: End = |_, pid| {
        // SAFETY: a child of ours that was not waited for yet.
        unsafe { libc::kill(pid as i32, libc::SIGTERM) };
    };
    for (columns, end) in [(200, q as End), (100, interrupt), (60, terminate)] {
        let (shown, code) = top((columns, "200ms"), three_frames, end);
        assert_eq!(code, Some(0), "{shown:?}");
        let (enter, leave, show) = ("\x1b[?1049h", "\x1b[?1049l", "\x1b[?25h");
        assert!(shown.starts_with(enter) && shown.contains(leave) && shown.contains(show), "{shown:?}");
        assert!(shown.contains("gapprobe top: 1 process, the last 1 s; q ends"), "{shown:?}");
        assert!(shown.contains("VERDICT") && shown.contains("BUSY %"), "{columns}: {shown:?}");
        assert_eq!(shown.contains("; q ends; "), columns < 200, "{columns}: {shown:?}");
        assert!(!shown.contains("\x1b[31m"), "a name that the terminal would obey");
        // none is wider than the terminal
        let all: Vec<String> = frames(&shown).into_iter().flat_map(lines).collect();
        let widest = all.iter().map(|l| l.chars().count()).max().unwrap();
        assert!(widest <= columns.into() && (columns > 100 || widest > 50), "{columns}: {widest}");
    }
}

/// A line that is cleared before it is written, or a screen, is seen empty: that flickers.
#[test]
fn a_frame_is_drawn_over_the_one_before() {
    let (shown, _) = top((120, "200ms"), three_frames, q);
    let all = frames(&shown);
    assert!(all.len() >= 3, "{shown:?}");
    for frame in all {
        for clears in ["\x1b[2J", "\x1b[2K", "\x1b[1K", "\x1b[1J"] {
            assert!(!frame.contains(clears), "{frame:?}");
        }
        let first_line = frame.find("gapprobe top").unwrap();
        assert!(frame.find("\x1b[K").unwrap() > first_line, "{frame:?}");
        assert!(frame.ends_with("\x1b[J"), "what was below is gone: {frame:?}");
    }
}

/// At once, not with the next look.
#[test]
fn the_table_follows_the_size_of_the_window() {
    let drawn = |shown: &str| shown.matches(FRAME.1).count();
    let mut asked = false;
    let followed = |shown: &str, keys: &File| {
        if !asked && drawn(shown) == 1 {
            resize(keys, 70, 4);
            asked = true;
        }
        drawn(shown) >= 2
    };
    let (shown, code) = top((200, "1h"), followed, q);
    assert_eq!(code, Some(0), "{shown:?}");
    let all = frames(&shown);
    let [wide, narrow] = [lines(all[0]), lines(all[1])];
    assert!(wide.iter().any(|l| l.chars().count() > 150), "{wide:?}");
    assert!(narrow.iter().all(|l| l.chars().count() <= 70) && narrow.len() == 4, "{narrow:?}");
    assert!(narrow[0].starts_with("gapprobe top: 1 process") && narrow[2].contains("VERDICT"), "{narrow:?}");
}
