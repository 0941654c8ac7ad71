// SPDX-License-Identifier: Apache-2.0
//! A server of one file, on loopback, for one page: it hands the file over once. Whoever else asks
//! is refused: other sites by their origin, names that are resolved to loopback by the host, other
//! users of the machine by a path that they cannot guess.

use std::fs::File;
use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use crate::verbs::http_head::{self, Request};

/// A browser opens connections ahead and sends nothing; one that takes nothing has hung.
const CLIENT_TIMEOUT: Duration = Duration::from_secs(20);
/// Between two looks for a connection, or a reason to end.
const LOOK: Duration = Duration::from_millis(20);

/// What is served, and to whom.
pub(super) struct Offer {
    /// Where it is: `/` and what cannot be guessed, `/` and the name, as a URL has it.
    pub(super) path: String,
    /// The file.
    pub(super) bytes: Vec<u8>,
    /// `scheme://host[:port]` of the page.
    pub(super) origin: String,
    /// Ports under which the page may reach this server.
    pub(super) ports: [u16; 2],
}

/// How serving ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum End {
    /// The page has the file.
    Served,
    /// Nobody came in time.
    TimedOut,
    /// `stop` said so.
    Stopped,
}

/// 128 bits that nobody can guess, as hexadecimal digits.
///
/// # Errors
/// Where the system has none.
pub(super) fn secret() -> io::Result<String> {
    let mut bytes = [0; 16];
    File::open("/dev/urandom")?.read_exact(&mut bytes)?;
    Ok(bytes.iter().map(|b| format!("{b:02x}")).collect())
}

/// Listens on loopback.
///
/// # Errors
/// Where the port is in use, or cannot be had.
pub(super) fn listen(port: u16) -> io::Result<TcpListener> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, port))?;
    listener.set_nonblocking(true)?;
    Ok(listener)
}

/// Serves until the file was handed over, `within` is over, or `stop` says so.
///
/// # Errors
/// Where the listener fails.
pub(super) fn serve(
    listener: &TcpListener,
    offer: Offer,
    within: Duration,
    mut stop: impl FnMut() -> bool,
) -> io::Result<End> {
    let (begin, shared) = (Instant::now(), Arc::new(Shared::of(offer)));
    loop {
        match listener.accept() {
            Ok((stream, _)) => {
                let shared = Arc::clone(&shared);
                // each its own: a connection that is silent holds up no other
                std::thread::spawn(move || shared.answer(stream));
            }
            Err(e) if matches!(e.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::ConnectionAborted) => {
                std::thread::sleep(LOOK);
            }
            Err(e) => return Err(e),
        }
        if shared.served.load(Ordering::Acquire) {
            return Ok(End::Served);
        }
        if stop() {
            return Ok(End::Stopped);
        }
        if begin.elapsed() >= within {
            return Ok(End::TimedOut);
        }
    }
}

struct Shared {
    offer: Offer,
    /// One at a time takes the file.
    turn: Mutex<()>,
    /// It was handed over.
    served: AtomicBool,
}

/// What a request comes to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Answer {
    /// The file.
    File,
    /// The browser may ask for it; `private`: also where this is a network more private than the
    /// page's, which some Chromium want to hear.
    Preflight { private: bool },
    /// 400: no request.
    Bad,
    /// 403: another host or origin.
    Forbidden,
    /// 404: nothing else is here.
    NotFound,
}

impl Shared {
    fn of(offer: Offer) -> Shared {
        Shared { offer, turn: Mutex::new(()), served: AtomicBool::new(false) }
    }

    /// Answers one request. A client that goes away takes nothing along: the next one may ask.
    fn answer(&self, mut stream: TcpStream) {
        let timeouts =
            stream.set_nonblocking(false).and_then(|()| stream.set_write_timeout(Some(CLIENT_TIMEOUT)));
        let Ok(head) = timeouts.and_then(|()| http_head::read(&stream, CLIENT_TIMEOUT)) else { return };
        let answer = self.offer.judge(&head);
        if answer != Answer::File {
            // whoever is refused may not wait for it
            let _ = self.offer.write(answer, &mut stream);
            return;
        }
        let turn = self.turn.try_lock();
        if turn.is_err() || self.served.load(Ordering::Acquire) {
            let _ = self.offer.write(Answer::NotFound, &mut stream); // as above
        } else if self.offer.write(Answer::File, &mut stream).is_ok() {
            self.served.store(true, Ordering::Release);
        }
    }
}

impl Offer {
    fn judge(&self, head: &[u8]) -> Answer {
        let Some(request) = Request::parse(head) else { return Answer::Bad };
        let value = |name: &str| request.header(name);
        let hosts = self.ports.iter().flat_map(|p| [format!("127.0.0.1:{p}"), format!("localhost:{p}")]);
        if !hosts.into_iter().any(|host| value("host") == Some(&host)) {
            return Answer::Forbidden;
        }
        if value("origin") != Some(&self.origin) {
            return Answer::Forbidden;
        }
        match (request.method, request.path == self.path) {
            ("GET", true) => Answer::File,
            ("OPTIONS", true) => {
                Answer::Preflight { private: value("access-control-request-private-network") == Some("true") }
            }
            _ => Answer::NotFound,
        }
    }

    fn write(&self, answer: Answer, stream: &mut TcpStream) -> io::Result<()> {
        let (status, body): (_, &[u8]) = match answer {
            Answer::File => ("200 OK", &self.bytes),
            Answer::Preflight { .. } => ("204 No Content", b""),
            Answer::Bad => ("400 Bad Request", b""),
            Answer::Forbidden => ("403 Forbidden", b""),
            Answer::NotFound => ("404 Not Found", b""),
        };
        let mut head = format!("HTTP/1.1 {status}\r\nConnection: close\r\nCache-Control: no-store\r\n");
        if matches!(answer, Answer::File | Answer::Preflight { .. } | Answer::NotFound) {
            head += &format!("Access-Control-Allow-Origin: {}\r\nVary: Origin\r\n", self.origin);
        }
        match answer {
            Answer::File => head += "Content-Type: application/octet-stream\r\n",
            Answer::Preflight { private } => {
                head += "Access-Control-Allow-Methods: GET\r\n";
                if private {
                    head += "Access-Control-Allow-Private-Network: true\r\n";
                }
            }
            _ => {}
        }
        if !matches!(answer, Answer::Preflight { .. }) {
            head += &format!("Content-Length: {}\r\n", body.len());
        }
        stream.write_all(format!("{head}\r\n").as_bytes())?;
        stream.write_all(body)?;
        stream.flush()
    }
}
