// SPDX-License-Identifier: Apache-2.0
//! The head of an HTTP request, for the two small servers here (`open`, `metrics --listen`). So
//! much HTTP is less than a library for it.

use std::io::{self, Read};
use std::net::TcpStream;
use std::time::{Duration, Instant};

/// A longer head is none of a browser's or a scraper's.
const MAX_HEAD: usize = 16 << 10;
/// Headers at most: browsers send about 15.
const MAX_HEADERS: usize = 64;

/// Reads up to the empty line, for so long at most: what is left unread would take the answer away.
///
/// # Errors
/// Where it does not come, or not in time.
pub(crate) fn read(mut stream: &TcpStream, within: Duration) -> io::Result<Vec<u8>> {
    let (begun, mut head, mut part) = (Instant::now(), Vec::new(), [0; 2048]);
    while !head.windows(4).any(|w| w == b"\r\n\r\n") && head.len() < MAX_HEAD {
        let left = within.checked_sub(begun.elapsed()).ok_or(io::ErrorKind::TimedOut)?;
        stream.set_read_timeout(Some(left.max(Duration::from_millis(1))))?;
        match stream.read(&mut part)? {
            0 => return Err(io::ErrorKind::UnexpectedEof.into()),
            n => head.extend_from_slice(part.get(..n).unwrap_or_default()),
        }
    }
    Ok(head)
}

/// What a head asks for.
pub(crate) struct Request<'a> {
    pub(crate) method: &'a str,
    /// With its query.
    pub(crate) path: &'a str,
    headers: Vec<httparse::Header<'a>>,
}

impl<'a> Request<'a> {
    /// `None`: the head is no request.
    pub(crate) fn parse(head: &'a [u8]) -> Option<Request<'a>> {
        let mut headers = [httparse::EMPTY_HEADER; MAX_HEADERS];
        let mut request = httparse::Request::new(&mut headers);
        request.parse(head).ok().filter(httparse::Status::is_complete)?;
        let (method, path) = (request.method?, request.path?);
        Some(Request { method, path, headers: request.headers.to_vec() })
    }

    /// A header's value, of several the first.
    pub(crate) fn header(&self, name: &str) -> Option<&'a str> {
        let found = self.headers.iter().find(|h| h.name.eq_ignore_ascii_case(name))?;
        std::str::from_utf8(found.value).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_has_method_path_and_headers_and_what_is_none_is_refused() {
        let head = b"GET /metrics?a=b HTTP/1.1\r\nHost: node\r\nhost: other\r\nX: \xff\r\n\r\n";
        let request = Request::parse(head).expect("a request");
        assert_eq!((request.method, request.path), ("GET", "/metrics?a=b"));
        assert_eq!((request.header("HOST"), request.header("origin")), (Some("node"), None));
        assert_eq!(request.header("x"), None, "no text");
        let many = format!("GET / HTTP/1.1\r\n{}\r\n", "a: b\r\n".repeat(MAX_HEADERS + 1));
        for none in ["", "\r\n\r\n", "GET / HTTP/1.1\r\nHost: no", "\x16\x03\x01\r\n\r\n", &many] {
            assert!(Request::parse(none.as_bytes()).is_none(), "{none}");
        }
    }
}
