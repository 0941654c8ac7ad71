// SPDX-License-Identifier: Apache-2.0
use super::*;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::fs::{DirBuilderExt, FileTypeExt, PermissionsExt};
use std::os::unix::net::UnixStream;
use trace::control::{Answer, RecordingState, Refusal, MOST_BYTES};
use trace::place::control_socket;

const S: u64 = 1_000_000_000;

/// One after the other: what is held on is known to the whole process.
static ALONE: parking_lot::Mutex<()> = parking_lot::Mutex::new(());

fn folder(name: &str) -> PathBuf {
    let folder = std::env::temp_dir().join(format!("gapprobe-control-{name}-{}", std::process::id()));
    let _ = std::fs::remove_dir_all(&folder);
    std::fs::DirBuilder::new().recursive(true).mode(0o700).create(&folder).unwrap();
    folder
}

fn connect(folder: &Path) -> UnixStream {
    let stream = UnixStream::connect(folder.join(control_socket(&recording::folders::owner()))).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
    stream
}

fn answer(stream: &UnixStream) -> Option<Answer> {
    let mut line = String::new();
    BufReader::new(stream).read_line(&mut line).unwrap();
    Answer::parse(line.as_bytes())
}

#[test]
fn recording_is_held_on_until_released_or_the_time_is_up_or_the_client_is_gone() {
    let _alone = ALONE.lock();
    let folder = folder("held");
    let mut control = Control::open(&folder, false).unwrap();
    let socket = folder.join(control_socket(&recording::folders::owner()));
    let mode = std::fs::symlink_metadata(socket).unwrap();
    assert!(mode.file_type().is_socket());
    assert_eq!(mode.permissions().mode() & 0o777, 0o600);
    let mut client = connect(&folder);
    client.write_all(b"gapprobe/1 status\ngapprobe/1 record 1000\n").unwrap();
    control.poll(S, Recorded::Part);
    assert_eq!(answer(&client), Some(Answer::Is(RecordingState::Off)));
    assert!(!outside::is_forced(S));
    control.poll(2 * S, Recorded::Part);
    assert_eq!(answer(&client), Some(Answer::Recording(2 * S)));
    assert!(outside::is_forced(2 * S) && !outside::is_forced(3 * S));
    let mut other = connect(&folder);
    other.write_all(b"gapprobe/1 record 60000\n").unwrap();
    client.write_all(b"gapprobe/1 release\n").unwrap();
    control.poll(2 * S + 1, Recorded::Part);
    assert_eq!(answer(&other), Some(Answer::Recording(2 * S + 1)));
    assert!(outside::is_forced(60 * S), "the other one holds it");
    drop(other);
    control.poll(2 * S + 2, Recorded::Part);
    assert!(!outside::is_forced(2 * S + 2), "who held it is gone");
    client.write_all(b"gapprobe/1 record 1000\n").unwrap();
    control.poll(3 * S, Recorded::Part);
    assert!(outside::is_forced(3 * S));
    control.poll(4 * S, Recorded::Part);
    assert!(!outside::is_forced(4 * S), "its time is up");
    std::fs::remove_dir_all(folder).unwrap();
}

#[test]
fn what_has_ended_for_good_is_not_held_on() {
    let _alone = ALONE.lock();
    let folder = folder("ended");
    let mut control = Control::open(&folder, false).unwrap();
    let mut client = connect(&folder);
    client.write_all(b"gapprobe/1 status\ngapprobe/1 record 1000\n").unwrap();
    control.poll(S, Recorded::NoMore);
    assert_eq!(answer(&client), Some(Answer::Is(RecordingState::Off)));
    control.poll(S, Recorded::NoMore);
    assert_eq!(answer(&client), Some(Answer::Refused(Refusal::Ended)));
    assert!(!outside::is_forced(S));
    std::fs::remove_dir_all(folder).unwrap();
}

#[test]
fn whoever_sends_nonsense_or_nothing_or_too_much_is_let_go() {
    let _alone = ALONE.lock();
    let folder = folder("nonsense");
    let mut control = Control::open(&folder, false).unwrap();
    let mut is_closed = |sent: &[u8], at: u64| {
        let mut client = connect(&folder);
        client.write_all(sent).unwrap();
        control.poll(S, Recorded::All);
        control.poll(at, Recorded::All);
        client.set_nonblocking(true).unwrap();
        let mut got = Vec::new();
        let ended = client.read_to_end(&mut got).is_ok();
        (ended, String::from_utf8(got).unwrap())
    };
    assert_eq!(is_closed(b"GET / HTTP/1.1\r\n", S), (true, "gapprobe/1 error version\n".to_owned()));
    assert_eq!(is_closed(b"gapprobe/1 stop\n", S), (true, "gapprobe/1 error unknown\n".to_owned()));
    assert_eq!(is_closed(&[b'x'; 95], S), (false, String::new()), "more may come");
    let long = is_closed(&[b'x'; MOST_BYTES], S);
    assert_eq!(long, (true, "gapprobe/1 error too-long\n".to_owned()));
    assert!(!is_closed(b"gapprobe/1 sta", S + CLIENT_TIMEOUT - 1).0);
    assert_eq!(is_closed(b"gapprobe/1 sta", S + CLIENT_TIMEOUT), (true, String::new()));
    let crowd: Vec<UnixStream> = (0..2 * MAX_CLIENTS).map(|_| connect(&folder)).collect();
    for _ in 0..3 {
        control.poll(S, Recorded::All);
    }
    crowd.iter().for_each(|c| c.set_nonblocking(true).unwrap());
    let ended = |c: &&UnixStream| matches!((&mut &**c).read(&mut [0]), Ok(0));
    assert_eq!(crowd.iter().filter(ended).count(), MAX_CLIENTS, "a place each for so many");
    drop(crowd);
    control.poll(S, Recorded::All);
    assert!(control.clients.iter().all(Option::is_none));
    std::fs::remove_dir_all(folder).unwrap();
}

#[test]
fn one_that_somebody_removed_comes_again() {
    let _alone = ALONE.lock();
    let folder = folder("removed");
    let mut control = Control::open(&folder, false).unwrap();
    let socket = folder.join(control_socket(&recording::folders::owner()));
    control.stand(LOOK);
    std::fs::remove_file(&socket).unwrap();
    control.stand(2 * LOOK - 1);
    assert!(!socket.exists(), "not yet");
    control.stand(2 * LOOK);
    let mut client = connect(&folder);
    client.write_all(b"gapprobe/1 status\n").unwrap();
    control.wait(2 * LOOK);
    control.poll(2 * LOOK, Recorded::All);
    assert_eq!(answer(&client), Some(Answer::Is(RecordingState::On)));
    // with its folder, too; but not where that leads to somebody else's
    std::fs::remove_dir_all(&folder).unwrap();
    control.stand(3 * LOOK);
    assert!(socket.exists());
    std::fs::remove_dir_all(&folder).unwrap();
    let other = folder.with_extension("other");
    std::fs::create_dir(&other).unwrap();
    std::os::unix::fs::symlink(&other, &folder).unwrap();
    control.stand(4 * LOOK);
    assert_eq!(std::fs::read_dir(&other).unwrap().count(), 0);
    std::fs::remove_file(&folder).unwrap();
    std::fs::remove_dir(other).unwrap();
}

/// What is seen of another root is another file system: nothing is looked for there, nothing made.
#[test]
fn behind_a_chroot_it_stays_as_it_is() {
    let _alone = ALONE.lock();
    let folder = folder("chroot");
    let mut control = Control::open(&folder, false).unwrap();
    let jail = folder.join("jail");
    std::fs::create_dir_all(jail.join(folder.strip_prefix("/").unwrap().parent().unwrap())).unwrap();
    let to = std::ffi::CString::new(jail.to_str().unwrap()).unwrap();
    let may = std::thread::scope(|s| {
        let jailed = s.spawn(|| {
            // SAFETY: this thread's own root from here on, and only where that may be had.
            let may =
                unsafe { libc::unshare(libc::CLONE_FS) } == 0 && unsafe { libc::chroot(to.as_ptr()) } == 0;
            if may {
                control.stand(LOOK);
            }
            may
        });
        jailed.join().unwrap()
    });
    if may {
        let inside = jail.join(folder.strip_prefix("/").unwrap());
        assert!(!inside.exists(), "nothing is made in the jail");
    } else {
        eprintln!("skipped: only root may chroot");
    }
    (&connect(&folder)).write_all(b"gapprobe/1 status\n").unwrap();
    std::fs::remove_dir_all(folder).unwrap();
}

#[test]
fn waiting_ends_with_whoever_comes_or_speaks_and_with_a_clients_time() {
    let _alone = ALONE.lock();
    let folder = folder("waits");
    let mut control = Control::open(&folder, false).unwrap();
    let waits = |control: &Control, now: u64| {
        let begun = std::time::Instant::now();
        control.wait(now);
        begun.elapsed()
    };
    let short = Duration::from_secs(2);
    let mut client = connect(&folder);
    assert!(waits(&control, S) < short, "somebody has come");
    control.poll(S, Recorded::All);
    client.write_all(b"gapprobe/1 status\ngapprobe/1 status\n").unwrap();
    assert!(waits(&control, S) < short, "and has spoken");
    control.poll(S, Recorded::All);
    assert!(waits(&control, S) < short, "the second line has come with the first");
    control.poll(S, Recorded::All);
    let left = waits(&control, S + CLIENT_TIMEOUT - 50_000_000);
    assert!((Duration::from_millis(50)..short).contains(&left), "{left:?}");
    std::fs::remove_dir_all(folder).unwrap();
}

#[test]
fn a_folder_too_deep_for_an_address_has_a_socket_all_the_same() {
    let _alone = ALONE.lock();
    let top = folder("deep");
    let deep = top.join("d".repeat(120));
    std::fs::DirBuilder::new().mode(0o700).create(&deep).unwrap();
    let mut control = Control::open(&deep, false).unwrap();
    std::os::unix::fs::symlink(&deep, top.join("s")).unwrap();
    let client = connect(&top.join("s"));
    (&client).write_all(b"gapprobe/1 status\n").unwrap();
    control.poll(S, Recorded::All);
    assert_eq!(answer(&client), Some(Answer::Is(RecordingState::On)));
    // what is there already is of this process before an exec
    drop(Control::open(&deep, false).unwrap());
    std::fs::remove_dir_all(top).unwrap();
}

#[test]
fn a_descriptor_that_became_the_programs_is_neither_read_nor_closed() {
    let _alone = ALONE.lock();
    let folder = folder("taken");
    let mut control = Control::open(&folder, false).unwrap();
    let client = connect(&folder);
    control.poll(S, Recorded::All);
    let taken = control.clients.iter().flatten().next().unwrap().socket.number();
    let path = folder.join("file");
    let file = std::fs::File::create(&path).unwrap();
    // SAFETY: puts the program's file under our number, as a program that closes and reopens
    // everything does.
    assert!(unsafe { libc::dup2(std::os::fd::AsRawFd::as_raw_fd(&file), taken) } >= 0);
    (&client).write_all(b"gapprobe/1 status\n").ok(); // our end is gone
    control.poll(S, Recorded::All);
    assert!(control.clients.iter().all(Option::is_none));
    // SAFETY: asks about a descriptor, and closes the one made above.
    assert!(unsafe { libc::fcntl(taken, libc::F_GETFD) } >= 0, "still open");
    // SAFETY: as above.
    unsafe { libc::close(taken) };
    assert_eq!(std::fs::metadata(path).unwrap().len(), 0);
    std::fs::remove_dir_all(folder).unwrap();
}
