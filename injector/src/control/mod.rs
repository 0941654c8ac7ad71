// SPDX-License-Identifier: Apache-2.0
// WARM (the thread that listens), COLD (`start`, `end`, `remove`)
//! The control socket: a command of the same user asks whether recording is on, and holds it on for
//! a while (`trace::control` has the words). It lies in the recording's private folder, mode 0600
//! from its first moment, and whoever connects must be of our user: the kernel says so. No port. A
//! thread of its own waits for who comes, with descriptors of its own, and no call of it but that
//! waits. Nothing but these few words is read, nothing is executed, no path is taken from a peer.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{fence, AtomicBool, Ordering};
use std::sync::OnceLock;
use std::time::Duration;

use crate::collector::drain;
use crate::platform::threads::spawn_quietly;
use crate::platform::{clock, descriptors, lifecycle};
use crate::recording;
use crate::sources::hostpool;
use crate::sources::marks::outside::{self, Recorded};

mod client;
mod place;
mod socket;

use client::Client;
use place::Place;
use socket::Socket;

/// Who may be connected at once; more are turned away.
const MAX_CLIENTS: usize = 4;
/// A connection that asks nothing and holds nothing is closed after this, ns.
const CLIENT_TIMEOUT: u64 = 5_000_000_000;

/// Between two looks whether the socket is still there, ns.
const LOOK: u64 = 5_000_000_000;

/// Between two answers, whoever asks and asks.
const PAUSE: Duration = Duration::from_millis(20);

/// The process ends: there is to be no socket.
static IS_OVER: AtomicBool = AtomicBool::new(false);
/// Where the socket of this process is.
static PATH: OnceLock<PathBuf> = OnceLock::new();

/// Listens beside the recording from now on. Where there can be no socket, the recording says why:
/// who asks for it reads that first.
pub(crate) fn start() {
    if !spawn_quietly("gapprobe-socket", run) {
        unheard("no thread could be started for it");
    }
}

/// The thread's body.
fn run() {
    // (where it cannot have descriptors of its own, they keep out of the program's way: see
    // `socket`)
    let has_own = descriptors::leave_the_programs(None);
    let Some(folder) = recording::folder() else { return };
    let mut control = match Control::open(folder, has_own) {
        Ok(control) => control,
        Err(e) => return unheard(&e.to_string()),
    };
    while !IS_OVER.load(Ordering::Relaxed) && lifecycle::get() != lifecycle::State::Inert {
        control.poll(clock::monotonic(), outside::recorded());
        control.wait(clock::monotonic());
        control.stand(clock::monotonic());
        std::thread::sleep(PAUSE);
    }
}

fn unheard(why: &str) {
    if let Some(recorder) = drain::recorder().as_mut() {
        recorder.store.attribute(trace::define::NO_CONTROL, why);
    }
}

/// The socket and who is connected.
struct Control {
    place: Place,
    /// The calling thread has descriptors of its own.
    has_own: bool,
    listener: Socket,
    /// When it was looked last whether the socket is there, ns.
    looked_at: u64,
    clients: [Option<Client>; MAX_CLIENTS],
    /// Recording is held on by one of them.
    holds: bool,
    /// Somebody has come, and there is no descriptor for it.
    is_full: bool,
}

impl Control {
    /// Listens in the recording's private folder, which is ours alone.
    fn open(folder: &Path, has_own: bool) -> io::Result<Control> {
        let place = Place::new(folder);
        let listener = listen(&place, has_own)?;
        Ok(Control {
            place,
            has_own,
            listener,
            looked_at: 0,
            clients: [const { None }; MAX_CLIENTS],
            holds: false,
            is_full: false,
        })
    }

    /// Waits until somebody comes or says something, or a client's time is up, or it is time to
    /// look after the socket. Not where that cannot be had: nobody more may be let in, or the
    /// kernel does not wait for so many (`RLIMIT_NOFILE`).
    fn wait(&self, now: u64) {
        let clients = || self.clients.iter().flatten();
        if self.is_full || clients().any(|c| c.line_end().is_some()) {
            return;
        }
        let ends = clients().map(Client::stays_until);
        let until = ends.chain([now.saturating_add(LOOK)]).min().unwrap_or(now);
        let all = [&self.listener].into_iter().chain(clients().map(|c| &c.socket));
        socket::wait(all, until.saturating_sub(now));
    }

    /// Listens anew where somebody has removed the socket, or the program has closed it. Not from
    /// within another root (`chroot`), whose paths are others.
    fn stand(&mut self, now: u64) {
        let is_due = now.saturating_sub(self.looked_at) >= LOOK;
        if !is_due || IS_OVER.load(Ordering::SeqCst) || !self.place.is_reached() {
            return;
        }
        self.looked_at = now;
        if self.place.is_empty() || !self.listener.is_ours() {
            if let Ok(listener) = listen(&self.place, self.has_own) {
                self.listener = listener;
            }
        }
    }

    /// Takes who came, answers who asked. A bounded number of calls that do not wait.
    fn poll(&mut self, now: u64, recorded: Recorded) {
        for _ in 0..MAX_CLIENTS {
            let came = self.listener.accept(self.has_own);
            self.is_full = came.is_err();
            let Ok(Some(socket)) = came else { break };
            let free = self.clients.iter_mut().find(|c| c.is_none());
            if let (Some(free), true) = (free, socket.is_of_our_user()) {
                *free = Some(Client::new(socket, now));
            }
        }
        for at in 0..MAX_CLIENTS {
            let held = self.clients.iter().flatten().any(|c| c.holds_until > now);
            let Some(place) = self.clients.get_mut(at) else { continue };
            if place.as_mut().is_some_and(|client| !client.serve(now, recorded, held)) {
                *place = None;
            }
        }
        let until = self.clients.iter().flatten().map(|c| c.holds_until).max().unwrap_or(0);
        if until > now {
            outside::force_until(until);
            if !self.holds {
                hostpool::wake_reader(); // its next round heeds it
            }
        } else if self.holds {
            outside::release();
        }
        self.holds = until > now;
    }
}

fn listen(place: &Place, has_own: bool) -> io::Result<Socket> {
    let listener = place.listen(has_own)?;
    let _ = PATH.set(place.path.clone()); // once a process

    // the program may have begun to end meanwhile: whoever comes second sees the other
    fence(Ordering::SeqCst);
    if IS_OVER.load(Ordering::SeqCst) {
        remove();
    }
    Ok(listener)
}

/// The process ends: nobody is answered any more. COLD.
pub(crate) fn end() {
    IS_OVER.store(true, Ordering::SeqCst);
}

/// As [`end`], and the socket goes. COLD.
pub(crate) fn remove() {
    end();
    fence(Ordering::SeqCst);
    if let Some(path) = PATH.get() {
        let _ = std::fs::remove_file(path); // gone already is fine
    }
}

#[cfg(test)]
mod tests;
