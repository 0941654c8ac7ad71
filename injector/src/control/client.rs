// SPDX-License-Identifier: Apache-2.0
// WARM
//! Who is connected to the control socket: what it has said so far, and what it holds.

use trace::control::{Answer, RecordingState, Refusal, Request, MOST_BYTES};

use super::socket::Socket;
use super::CLIENT_TIMEOUT;
use crate::sources::marks::outside::Recorded;

pub(super) struct Client {
    pub(super) socket: Socket,
    line: [u8; MOST_BYTES],
    used: usize,
    /// When it connected, or asked something last.
    since: u64,
    /// It holds recording on until then; 0: not.
    pub(super) holds_until: u64,
}

impl Client {
    /// It connected `now`.
    pub(super) fn new(socket: Socket, now: u64) -> Client {
        Client { socket, line: [0; MOST_BYTES], used: 0, since: now, holds_until: 0 }
    }

    /// Until when it may stay without a word more, ns.
    pub(super) fn stays_until(&self) -> u64 {
        self.holds_until.max(self.since.saturating_add(CLIENT_TIMEOUT))
    }

    /// Where the line ends that came and was not answered yet.
    pub(super) fn line_end(&self) -> Option<usize> {
        self.line.iter().take(self.used).position(|b| *b == b'\n')
    }

    /// Reads what is there and answers one line; `false`: the connection is over. `held`: somebody
    /// holds recording on.
    pub(super) fn serve(&mut self, now: u64, recorded: Recorded, held: bool) -> bool {
        let room = self.line.get_mut(self.used..).unwrap_or(&mut []);
        match self.socket.receive(room) {
            Some(0) => return false,
            Some(n) => self.used += n,
            None if self.socket.is_broken() => return false,
            None => {}
        }
        let Some(end) = self.line_end() else {
            if self.used == MOST_BYTES {
                let _ = self.socket.send(&Answer::Refused(Refusal::TooLong)); // it is closed anyway
                return false;
            }
            let waits = self.holds_until > now || now.saturating_sub(self.since) < CLIENT_TIMEOUT;
            return waits;
        };
        let request = Request::parse(self.line.get(..=end).unwrap_or(&[]));
        self.line.copy_within(end + 1..self.used, 0);
        self.used -= end + 1;
        self.since = now;
        let others = held && self.holds_until <= now;
        let standing = |held: bool| match (recorded, held) {
            (Recorded::All, _) => RecordingState::On,
            (_, true) => RecordingState::Held,
            (_, false) => RecordingState::Off,
        };
        let answer = match request {
            Ok(Request::Status) => Answer::Is(standing(held)),
            Ok(Request::Record(_)) if recorded == Recorded::NoMore => Answer::Refused(Refusal::Ended),
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
