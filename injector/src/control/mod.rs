// SPDX-License-Identifier: Apache-2.0
// WARM (the drain thread polls it between rounds; `start`, `open` and `remove` are COLD)
//! The control socket: a command of the same user asks whether recording is on, and holds it on for a while
//! (`trace::control` has the words). It lies in the recording's private folder, mode 0600 from its first moment, and
//! whoever connects must be of our user: the kernel says so. No port, and no thread but a moment's that opens it: the drain thread
//! looks 20 times a second, and no call of that ever waits. Nothing but these few words is read, nothing is executed, no path is taken from a peer.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{fence, AtomicBool, Ordering};
use std::sync::OnceLock;

use parking_lot::Mutex;
use trace::control::{Answer, Refusal, Request, Standing, MOST_BYTES};
use trace::place;

use crate::drain::RECORDER;
use crate::threads::spawn_quietly;
use crate::{program, recording};

mod socket;

use socket::Socket;

/// Who may be connected at once; more are turned away.
const MOST_CLIENTS: usize = 4;
/// A connection that asks nothing and holds nothing is closed after this, ns.
const PATIENCE: u64 = 5_000_000_000;

/// The process ends: there is to be no socket.
static IS_OVER: AtomicBool = AtomicBool::new(false);
/// Where the socket of this process is.
static PATH: OnceLock<PathBuf> = OnceLock::new();

/// Listening, and not yet with the drain thread.
static OPENED: Mutex<Option<Control>> = Mutex::new(None);

/// Opens the socket beside the recording, on a thread of its own: a number out of the program's way makes the kernel enlarge the table of
/// descriptors, which takes 10 ms and more where a process has several threads, and the drain thread is wanted most at the start. Where there can be
/// no socket, the recording says why: who asks for it reads that first.
pub(crate) fn start() {
    let open = || match recording::folder().map(Control::open) {
        Some(Ok(control)) => *OPENED.lock() = Some(control),
        Some(Err(e)) => unheard(&e.to_string()),
        None => {}
    };
    if !spawn_quietly("gapprobe-socket", open) {
        unheard("no thread could be started for it");
    }
}

fn unheard(why: &str) {
    if let Some(recorder) = RECORDER.lock().as_mut() {
        recorder.store.attribute(trace::define::NO_CONTROL, why);
    }
}

/// The open socket, once.
pub(crate) fn take() -> Option<Control> {
    OPENED.lock().take()
}

/// The socket and who is connected.
pub(crate) struct Control {
    listener: Socket,
    clients: [Option<Client>; MOST_CLIENTS],
    /// Recording is held on by one of them.
    holds: bool,
}

struct Client {
    socket: Socket,
    line: [u8; MOST_BYTES],
    used: usize,
    /// When it connected, or asked something last.
    since: u64,
    /// It holds recording on until then; 0: not.
    holds_until: u64,
}

impl Control {
    /// Listens in the recording's private folder, which is ours alone.
    pub(crate) fn open(folder: &Path) -> io::Result<Control> {
        let name = place::control_socket(&recording::folders::owner());
        let path = folder.join(&name);
        let listener = match Socket::listen(folder, &name) {
            // of the program that this process was before it called exec
            Err(e) if e.kind() == io::ErrorKind::AddrInUse => {
                std::fs::remove_file(&path)?;
                Socket::listen(folder, &name)?
            }
            listening => listening?,
        };
        let _ = PATH.set(path); // once a process
                                // of a program that has begun to end meanwhile: whoever comes second sees the other
        fence(Ordering::SeqCst);
        if IS_OVER.load(Ordering::SeqCst) {
            remove();
        }
        Ok(Control { listener, clients: [const { None }; MOST_CLIENTS], holds: false })
    }

    /// Takes who came, answers who asked. A bounded number of calls that do not wait. `wanted`: everything is
    /// recorded as it is, the program wants that and there are no windows.
    pub(crate) fn poll(&mut self, now: u64, wanted: bool) {
        for _ in 0..MOST_CLIENTS {
            let Some(socket) = self.listener.accept() else { break };
            let free = self.clients.iter_mut().find(|c| c.is_none());
            if let (Some(free), true) = (free, socket.is_of_our_user()) {
                *free = Some(Client { socket, line: [0; MOST_BYTES], used: 0, since: now, holds_until: 0 });
            }
        }
        for at in 0..MOST_CLIENTS {
            let held = self.clients.iter().flatten().any(|c| c.holds_until > now);
            let Some(place) = self.clients.get_mut(at) else { continue };
            if place.as_mut().is_some_and(|client| !client.serve(now, wanted, held)) {
                *place = None;
            }
        }
        let until = self.clients.iter().flatten().map(|c| c.holds_until).max().unwrap_or(0);
        if until > now {
            program::force_until(until);
        } else if self.holds {
            program::release();
        }
        self.holds = until > now;
    }
}

impl Client {
    /// Reads what is there and answers one line; `false`: the connection is over. `held`: somebody holds recording on.
    fn serve(&mut self, now: u64, wanted: bool, held: bool) -> bool {
        let room = self.line.get_mut(self.used..).unwrap_or(&mut []);
        match self.socket.receive(room) {
            Some(0) => return false,
            Some(n) => self.used += n,
            None if self.socket.is_broken() => return false,
            None => {}
        }
        let Some(end) = self.line.iter().take(self.used).position(|b| *b == b'\n') else {
            if self.used == MOST_BYTES {
                let _ = self.socket.send(&Answer::Refused(Refusal::TooLong)); // it is closed anyway
                return false;
            }
            let waits = self.holds_until > now || now.saturating_sub(self.since) < PATIENCE;
            return waits;
        };
        let request = Request::parse(self.line.get(..=end).unwrap_or(&[]));
        self.line.copy_within(end + 1..self.used, 0);
        self.used -= end + 1;
        self.since = now;
        let others = held && self.holds_until <= now;
        let standing = |held: bool| match (wanted, held) {
            (true, _) => Standing::On,
            (false, true) => Standing::Held,
            (false, false) => Standing::Off,
        };
        let answer = match request {
            Ok(Request::Status) => Answer::Is(standing(held)),
            Ok(Request::Record(ms)) => {
                self.holds_until = now.saturating_add(ms.saturating_mul(1_000_000));
                Answer::Recording(now)
            }
            Ok(Request::Release) => {
                self.holds_until = 0;
                Answer::Is(standing(others))
            }
            Err(why) => Answer::Refused(why),
        };
        self.socket.send(&answer) && request.is_ok()
    }
}

/// Takes the socket away: the process ends. COLD.
pub(crate) fn remove() {
    IS_OVER.store(true, Ordering::SeqCst);
    fence(Ordering::SeqCst);
    if let Some(path) = PATH.get() {
        let _ = std::fs::remove_file(path); // gone already is fine
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{BufRead, BufReader, Read, Write};
    use std::os::unix::fs::{DirBuilderExt, FileTypeExt, PermissionsExt};
    use std::os::unix::net::UnixStream;

    const S: u64 = 1_000_000_000;

    /// One after the other: what is held on is known to the whole process.
    static ALONE: Mutex<()> = Mutex::new(());

    fn folder(name: &str) -> PathBuf {
        let folder = std::env::temp_dir().join(format!("gapprobe-control-{name}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&folder);
        std::fs::DirBuilder::new().recursive(true).mode(0o700).create(&folder).unwrap();
        folder
    }

    fn connect(folder: &Path) -> UnixStream {
        let stream =
            UnixStream::connect(folder.join(place::control_socket(&recording::folders::owner()))).unwrap();
        stream.set_read_timeout(Some(std::time::Duration::from_secs(5))).unwrap();
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
        let mut control = Control::open(&folder).unwrap();
        let socket = folder.join(place::control_socket(&recording::folders::owner()));
        let mode = std::fs::symlink_metadata(socket).unwrap();
        assert!(mode.file_type().is_socket());
        assert_eq!(mode.permissions().mode() & 0o777, 0o600);
        let mut client = connect(&folder);
        client.write_all(b"gapprobe/1 status\ngapprobe/1 record 1000\n").unwrap();
        control.poll(S, false);
        assert_eq!(answer(&client), Some(Answer::Is(Standing::Off)));
        assert!(!program::is_forced(S));
        control.poll(2 * S, false);
        assert_eq!(answer(&client), Some(Answer::Recording(2 * S)));
        assert!(program::is_forced(2 * S) && !program::is_forced(3 * S));
        let mut other = connect(&folder);
        other.write_all(b"gapprobe/1 record 60000\n").unwrap();
        client.write_all(b"gapprobe/1 release\n").unwrap();
        control.poll(2 * S + 1, false);
        assert_eq!(answer(&other), Some(Answer::Recording(2 * S + 1)));
        assert!(program::is_forced(60 * S), "the other one holds it");
        drop(other);
        control.poll(2 * S + 2, false);
        assert!(!program::is_forced(2 * S + 2), "who held it is gone");
        client.write_all(b"gapprobe/1 record 1000\n").unwrap();
        control.poll(3 * S, false);
        assert!(program::is_forced(3 * S));
        control.poll(4 * S, false);
        assert!(!program::is_forced(4 * S), "its time is up");
        std::fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn whoever_sends_nonsense_or_nothing_or_too_much_is_let_go() {
        let _alone = ALONE.lock();
        let folder = folder("nonsense");
        let mut control = Control::open(&folder).unwrap();
        let mut is_closed = |sent: &[u8], at: u64| {
            let mut client = connect(&folder);
            client.write_all(sent).unwrap();
            control.poll(S, true);
            control.poll(at, true);
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
        assert!(!is_closed(b"gapprobe/1 sta", S + PATIENCE - 1).0);
        assert_eq!(is_closed(b"gapprobe/1 sta", S + PATIENCE), (true, String::new()));
        let crowd: Vec<UnixStream> = (0..2 * MOST_CLIENTS).map(|_| connect(&folder)).collect();
        for _ in 0..3 {
            control.poll(S, true);
        }
        crowd.iter().for_each(|c| c.set_nonblocking(true).unwrap());
        let ended = |c: &&UnixStream| matches!((&mut &**c).read(&mut [0]), Ok(0));
        assert_eq!(crowd.iter().filter(ended).count(), MOST_CLIENTS, "a place each for so many");
        drop(crowd);
        control.poll(S, true);
        assert!(control.clients.iter().all(Option::is_none));
        std::fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn a_folder_too_deep_for_an_address_has_a_socket_all_the_same() {
        let _alone = ALONE.lock();
        let top = folder("deep");
        let deep = top.join("d".repeat(120));
        std::fs::DirBuilder::new().mode(0o700).create(&deep).unwrap();
        let mut control = Control::open(&deep).unwrap();
        std::os::unix::fs::symlink(&deep, top.join("s")).unwrap();
        let client = connect(&top.join("s"));
        (&client).write_all(b"gapprobe/1 status\n").unwrap();
        control.poll(S, true);
        assert_eq!(answer(&client), Some(Answer::Is(Standing::On)));
        // what is there already is of this process before an exec
        drop(Control::open(&deep).unwrap());
        std::fs::remove_dir_all(top).unwrap();
    }

    #[test]
    fn a_descriptor_that_became_the_programs_is_neither_read_nor_closed() {
        let _alone = ALONE.lock();
        let folder = folder("taken");
        let mut control = Control::open(&folder).unwrap();
        let client = connect(&folder);
        control.poll(S, true);
        let taken = control.clients.iter().flatten().next().unwrap().socket.number();
        let path = folder.join("file");
        let file = std::fs::File::create(&path).unwrap();
        // SAFETY: puts the program's file under our number, as a program that closes and reopens everything does.
        assert!(unsafe { libc::dup2(std::os::fd::AsRawFd::as_raw_fd(&file), taken) } >= 0);
        (&client).write_all(b"gapprobe/1 status\n").ok(); // our end is gone
        control.poll(S, true);
        assert!(control.clients.iter().all(Option::is_none));
        // SAFETY: asks about a descriptor, and closes the one made above.
        assert!(unsafe { libc::fcntl(taken, libc::F_GETFD) } >= 0, "still open");
        // SAFETY: as above.
        unsafe { libc::close(taken) };
        assert_eq!(std::fs::metadata(path).unwrap().len(), 0);
        std::fs::remove_dir_all(folder).unwrap();
    }
}
