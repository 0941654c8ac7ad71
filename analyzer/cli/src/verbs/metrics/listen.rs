// SPDX-License-Identifier: Apache-2.0
//! A scrape endpoint: answers `GET /metrics` with the text of the last look, and nothing else.

use std::io::{self, Write};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use crate::verbs::exit::{Exit, Failure};
use crate::verbs::http_head::{self, Request};

/// Longest time for a request, and longest wait for room for the answer.
const CLIENT_TIMEOUT: Duration = Duration::from_secs(2);
/// Answered at a time; others are hung up on.
const MAX_CLIENTS: usize = 16;

/// What is answered.
#[derive(Clone, Default)]
pub(super) struct Text(Arc<Mutex<String>>);

impl Text {
    /// From now on this.
    pub(super) fn set(&self, text: &str) {
        if let Ok(mut now) = self.0.lock() {
            text.clone_into(&mut now);
        }
    }

    fn get(&self) -> String {
        self.0.lock().map(|text| text.clone()).unwrap_or_default()
    }
}

/// `PORT`, or `ADDRESS:PORT`: without an address the loopback one.
pub(super) fn address(text: &str) -> Result<SocketAddr, String> {
    if let Ok(port) = text.parse() {
        return Ok(SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), port));
    }
    text.parse()
        .map_err(|_| "a port such as 9400, or with an address to be reached at: 0.0.0.0:9400".to_owned())
}

/// Listens from now on, and answers in a thread of its own.
///
/// # Errors
/// Where the port is in use, or not ours to have.
pub(super) fn listen(address: SocketAddr) -> Result<Text, Failure> {
    let refused = |e: io::Error| {
        let hint = match e.kind() {
            io::ErrorKind::AddrInUse => "another program has this port: --listen with another one",
            _ => "--listen takes an address of this host, and a port from 1024 on",
        };
        Failure::new(Exit::Problem, format!("cannot listen at {address}: {e}")).hint(hint)
    };
    let listener = TcpListener::bind(address).map_err(refused)?;
    let text = Text::default();
    let answered = text.clone();
    let serve = move || {
        let answering = Arc::new(());
        for stream in listener.incoming().flatten() {
            let (text, one) = (answered.clone(), answering.clone());
            if Arc::strong_count(&one) <= MAX_CLIENTS + 1 {
                // (who hangs up wants no answer; without a thread there is none)
                let _ = std::thread::Builder::new().spawn(move || (answer(&stream, &text), one));
            }
        }
    };
    std::thread::Builder::new().name("scrapes".to_owned()).spawn(serve).map_err(refused)?;
    Ok(text)
}

fn answer(mut stream: &TcpStream, text: &Text) -> io::Result<()> {
    stream.set_write_timeout(Some(CLIENT_TIMEOUT))?;
    let head = http_head::read(stream, CLIENT_TIMEOUT)?;
    let asked = Request::parse(&head).map(|r| (r.method, r.path.split('?').next().unwrap_or("")));
    let (status, kind, body) = match asked {
        Some(("GET" | "HEAD", "/metrics")) => {
            ("200 OK", "text/plain; version=0.0.4; charset=utf-8", text.get())
        }
        Some(("GET" | "HEAD", _)) => ("404 Not Found", "text/plain", "gapprobe: /metrics\n".to_owned()),
        Some(_) => ("405 Method Not Allowed", "text/plain", "gapprobe: GET /metrics\n".to_owned()),
        None => ("400 Bad Request", "text/plain", "gapprobe: GET /metrics\n".to_owned()),
    };
    let length = body.len();
    let head = format!(
        "HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {length}\r\nAllow: GET, HEAD\r\nConnection: close\r\n\r\n"
    );
    stream.write_all(head.as_bytes())?;
    if asked.is_none_or(|(method, _)| method != "HEAD") {
        stream.write_all(body.as_bytes())?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::address;

    #[test]
    fn without_an_address_it_is_the_loopback_one() {
        for (text, wanted) in
            [("9400", "127.0.0.1:9400"), ("0.0.0.0:9400", "0.0.0.0:9400"), ("[::1]:9400", "[::1]:9400")]
        {
            assert_eq!(address(text).map(|a| a.to_string()), Ok(wanted.to_owned()));
        }
        for text in ["", ":9400", "localhost:9400", "0.0.0.0", "65536", "-1"] {
            assert!(address(text).is_err(), "{text}");
        }
    }
}
