// SPDX-License-Identifier: Apache-2.0
//! How trace and summary are called: by host, process and time.

use std::hash::{BuildHasher, Hasher};

use trace::Header;

use crate::run::Run;

/// The recorded process's host, as it may stand in a file's name.
pub(super) fn host(header: &Header) -> String {
    let named = |c: char| if c.is_ascii_alphanumeric() || c == '.' { c } else { '-' };
    let host: String = header.host.chars().map(named).take(64).collect();
    match host.trim_matches(|c| c == '-' || c == '.') {
        "" => "host".to_owned(),
        rest => rest.to_owned(),
    }
}

/// `gapprobe-<host>-<pid>-<YYYYmmdd-HHMMSS>-<4 random>`.
pub(super) fn stem(run: &Run, named_by: Option<u64>) -> String {
    let mut hasher = std::collections::hash_map::RandomState::new().build_hasher();
    hasher.write_u64(run.header.start_realtime);
    let random = hasher.finish() & 0xffff;
    format!("{}{random:04x}", prefix(&run.header, named_by))
}

/// The same without what is random.
pub(super) fn prefix(h: &Header, named_by: Option<u64>) -> String {
    let since = named_by.unwrap_or(h.start_realtime);
    format!("gapprobe-{}-{}-{}-", host(h), h.pid, utc(since / 1_000_000_000))
}

/// `YYYYmmdd-HHMMSS` of seconds since 1970, UTC. Days to a date as in Howard Hinnant's
/// `civil_from_days` (<http://howardhinnant.github.io/date_algorithms.html>).
fn utc(seconds: u64) -> String {
    let (days, rest) = (seconds / 86_400, seconds % 86_400);
    let shifted = days + 719_468; // days since 0000-03-01
    let (era, day_of_era) = (shifted / 146_097, shifted % 146_097);
    let year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = if month_from_march < 10 { month_from_march + 3 } else { month_from_march - 9 };
    let year = year_of_era + era * 400 + u64::from(month <= 2);
    format!("{year:04}{month:02}{day:02}-{:02}{:02}{:02}", rest / 3600, rest / 60 % 60, rest % 60)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_are_right_around_leap_days() {
        for (seconds, expected) in [
            (0, "19700101-000000"),
            (951_782_399, "20000228-235959"),
            (951_782_400, "20000229-000000"),
            (1_078_099_200, "20040301-000000"),
            (1_795_000_000, "20261118-110640"),
            (4_107_542_400, "21000301-000000"),
        ] {
            assert_eq!(utc(seconds), expected);
        }
    }

    #[test]
    fn a_hostile_host_name_stays_inside_the_directory() {
        let mut run = Run::default();
        run.header.host = "../../etc/ä b".into();
        let stem = stem(&run, None);
        assert!(stem.starts_with("gapprobe-"), "{stem}");
        assert!(stem.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-' || b == b'.'), "{stem}");
        assert!(!stem.contains('/'));
    }
}
