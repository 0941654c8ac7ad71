// SPDX-License-Identifier: Apache-2.0
//! Which CUDA release a libcupti belongs to, from the number it reports and its soname.

use core::fmt;

/// A CUDA release as far as a library tells it. For people and for choosing record sizes; never to
/// decide whether a function exists (a resolved symbol says that).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Release {
    /// 11, 12, 13, ...; 0 if neither number nor soname tells.
    pub major: u8,
    /// The minor release, `None` if the library does not tell; the first of several that share one
    /// number.
    pub minor: Option<u8>,
    /// The last minor release with the same number: 12.0 and 12.1 both report 18. Else the same as
    /// `minor`.
    pub last_minor: Option<u8>,
}

impl Release {
    const fn exact(major: u8, minor: u8) -> Self {
        Self { major, minor: Some(minor), last_minor: Some(minor) }
    }

    /// True if the release is at least `major.minor`; false where the minor is not known.
    #[must_use]
    pub fn is_at_least(self, major: u8, minor: u8) -> bool {
        self.major > major || (self.major == major && self.minor.is_some_and(|own| own >= minor))
    }
}

impl fmt::Display for Release {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.major, self.minor, self.last_minor) {
            (0, _, _) => formatter.write_str("unknown"),
            (major, None, _) => write!(formatter, "{major}.x"),
            (major, Some(minor), Some(last)) if last != minor => {
                write!(formatter, "{major}.{minor}-{major}.{last}")
            }
            (major, Some(minor), _) => write!(formatter, "{major}.{minor}"),
        }
    }
}

/// The release of a library from `cuptiGetVersion`'s number and the file name or soname
/// (`libcupti.so.12`; a path is fine). Numbers up to 28 do not follow the release, and 11.8 shares
/// its number with 12.0 and 12.1, so the soname decides the major release there. From
/// 13.0 on the number is major x 10000 + minor x 100 + patch.
#[must_use]
pub fn release_from(version: u32, soname: &str) -> Release {
    if version >= 100_000 {
        let major = u8::try_from(version / 10_000).unwrap_or(0);
        let minor = u8::try_from(version / 100 % 100).ok();
        return Release { major, minor, last_minor: minor };
    }
    let (major, minor) = numbers_in(soname);
    match (major, minor, version) {
        // CUDA 11 has the minor in its soname.
        (11, Some(minor), _) => Release::exact(11, minor),
        (12, _, 18) => Release { major: 12, minor: Some(0), last_minor: Some(1) },
        (_, _, 20) => Release::exact(12, 2),
        (_, _, 21) => Release::exact(12, 3),
        (_, _, 22) => Release::exact(12, 4),
        (_, _, 23) => Release::exact(12, 5),
        (_, _, 24) => Release::exact(12, 6),
        (_, _, 26) => Release::exact(12, 8),
        (_, _, 27 | 28) => Release::exact(12, 9),
        (major, minor, _) => Release { major, minor, last_minor: minor },
    }
}

/// The numbers after `libcupti.so.` in a path or soname; a version of CUDA 12's own scheme
/// (`12.4.127`) or of its date (`.2024.1.0`, real file behind the link) gives a major alone or
/// nothing.
fn numbers_in(soname: &str) -> (u8, Option<u8>) {
    let Some((_, tail)) = soname.rsplit_once("libcupti.so.") else { return (0, None) };
    let mut parts = tail.split('.').map(str::parse::<u8>);
    match (parts.next(), parts.next()) {
        (Some(Ok(major)), Some(Ok(minor))) => (major, Some(minor)),
        (Some(Ok(major)), _) => (major, None),
        _ => (0, None),
    }
}

#[cfg(test)]
mod tests {
    use super::release_from;

    #[test]
    fn every_row_of_the_survey_gets_its_name() {
        let rows = [
            (17, "libcupti.so.11.7", "11.7"),
            (18, "/opt/lib/libcupti.so.11.8", "11.8"),
            (18, "libcupti.so.12", "12.0-12.1"),
            (20, "libcupti.so.12", "12.2"),
            (21, "libcupti.so.12", "12.3"),
            (22, "libcupti.so.12", "12.4"),
            (23, "libcupti.so.12", "12.5"),
            (24, "libcupti.so.12", "12.6"),
            (26, "libcupti.so.12", "12.8"),
            (28, "libcupti.so.12", "12.9"),
            (130_001, "libcupti.so.13", "13.0"),
            (130_101, "libcupti.so.13", "13.1"),
            (130_202, "libcupti.so.13", "13.2"),
            (130_301, "libcupti.so.13", "13.3"),
            (130_401, "libcupti.so.13", "13.4"),
            (130_500, "libcupti.so.13", "13.5"),
            (140_000, "libcupti.so.14", "14.0"),
        ];
        for (version, soname, name) in rows {
            assert_eq!(release_from(version, soname).to_string(), name, "{version} {soname}");
        }
    }

    #[test]
    fn what_cannot_be_told_is_not_guessed() {
        assert_eq!(release_from(0, "libcupti.so.12").to_string(), "12.x");
        assert_eq!(release_from(18, "libcupti.so").to_string(), "unknown");
        assert_eq!(release_from(0, "nonsense").to_string(), "unknown");
        assert_eq!(release_from(u32::MAX, "libcupti.so.13").major, 0);
        assert!(!release_from(0, "libcupti.so.12").is_at_least(12, 0));
        assert!(release_from(28, "libcupti.so.12").is_at_least(12, 8));
        assert!(release_from(130_001, "").is_at_least(12, 9));
    }
}
