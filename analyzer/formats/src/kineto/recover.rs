// SPDX-License-Identifier: Apache-2.0
//! An event whose text is no JSON: what of it can be read all the same, and what is lost where not.
//!
//! PyTorch wrote names of Python functions as they are: a quote in one ends the string early
//! (`"name": "{"device": "cuda"}(12): f"`). Where such a name ends its surroundings tell: behind
//! the quote comes the next key of an event.

use super::event;
use super::part::Part;
use super::scan::{Scan, Value};

/// Keys of an event, in any order.
const KEYS: [&[u8]; 12] =
    [b"ph", b"cat", b"name", b"pid", b"tid", b"ts", b"dur", b"args", b"id", b"bp", b"s", b"cname"];
/// Categories that no verdict rests on: frames of Python, operators, arrows.
const ASIDE: [&[u8]; 7] =
    [b"python_function", b"cpu_op", b"Operator", b"ac2g", b"fwdbwd", b"overhead", b"cpu_instant_event"];
/// An event without tensors' shapes is no longer than this: more may hide others.
const MOST_ONE: usize = 4096;
/// A name is looked at so far.
const MOST_NAME: usize = 1 << 16;

/// Reads the event that begins at `text`'s begin with the quotes in its name taken as parts of it.
/// Returns how long it is; `None`, and nothing read, where that is not what is wrong with it.
pub(super) fn with_quotes(text: &[u8], part: &mut Part) -> Option<usize> {
    let from = name(text)?;
    let rest = text.get(from..(from + MOST_NAME).min(text.len()))?;
    let (mut escaped, mut quotes) = (Vec::new(), 0);
    let mut bytes = rest.iter().enumerate();
    let end = loop {
        let (n, &b) = bytes.next()?;
        match b {
            b'"' if ends_here(rest.get(n + 1..)?) => break n,
            b'"' => {
                quotes += 1;
                escaped.extend_from_slice(b"\\\"");
            }
            b'\\' => {
                escaped.push(b);
                escaped.push(*bytes.next()?.1);
            }
            _ => escaped.push(b),
        }
    };
    if quotes == 0 {
        return None;
    }
    let whole = [text.get(..from)?, &escaped, text.get(from + end..)?].concat();
    let mut scan = Scan::new(&whole, 0);
    event::event(&mut scan, part).ok()?;
    part.refused.recovered += 1;
    Some(scan.at() - quotes)
}

/// Where the text of the event's name begins, if all in front of it is sound.
fn name(text: &[u8]) -> Option<usize> {
    let mut scan = Scan::new(text, 0);
    scan.expect(b'{').ok()?;
    loop {
        let key = scan.string().ok()?;
        scan.expect(b':').ok()?;
        if key == b"name" {
            scan.expect(b'"').ok()?;
            return Some(scan.at());
        }
        scan.value().ok()?;
        scan.expect(b',').ok()?;
    }
}

/// Behind a quote: the end of the event, or its next key.
fn ends_here(rest: &[u8]) -> bool {
    let mut scan = Scan::new(rest, 0);
    match scan.peek() {
        Ok(b'}') => scan.expect(b'}').is_ok() && is_between(&mut scan),
        Ok(b',') => {
            let key = scan.expect(b',').and_then(|()| scan.string());
            key.is_ok_and(|key| KEYS.contains(&key)) && scan.expect(b':').is_ok()
        }
        _ => false,
    }
}

/// Behind an event: nothing, the end of the list, or the next event.
fn is_between(scan: &mut Scan<'_>) -> bool {
    match scan.peek() {
        Ok(b',') => scan.expect(b',').is_ok() && scan.peek().map_or(true, |b| b == b'{'),
        Ok(b) => b == b']',
        Err(_) => true,
    }
}

/// Is this text a single event that no verdict rests on?
pub(super) fn is_aside(text: &[u8]) -> bool {
    let once = |key: &[u8]| text.windows(key.len()).filter(|w| *w == key).count() == 1;
    let is_text = |b: &u8| *b >= b' ' || b.is_ascii_whitespace();
    // (what does not begin as an event may be the end of another one)
    let is_whole = text.first() == Some(&b'{') && text.len() <= MOST_ONE;
    if !is_whole || !text.iter().all(is_text) || !once(b"\"ph\"") || !once(b"\"cat\"") {
        return false;
    }
    let Some(at) = text.windows(5).position(|w| w == b"\"cat\"") else { return false };
    let mut scan = Scan::new(text, at + 5);
    let value = scan.expect(b':').and_then(|()| scan.value());
    matches!(value, Ok(Value::Text(category)) if ASIDE.contains(&category))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Option<(usize, Vec<String>)> {
        let mut part = Part::default();
        let length = with_quotes(text.as_bytes(), &mut part)?;
        assert_eq!((part.events, part.refused.recovered), (1, 1));
        let names = std::mem::take(&mut part.texts).into_texts();
        Some((length, names.iter().map(|n| String::from_utf8_lossy(n).into_owned()).collect()))
    }

    #[test]
    fn a_name_ends_where_the_next_key_of_an_event_comes() {
        for name in [r#"{"a": "b", "c": "d"}(1): f"#, r#"f("x", 3)"#, r#"say """#, r#"\"x" y"#, r#"5" disk"#]
        {
            for (before, after) in [
                (r#"{"ph":"X","cat":"python_function","#, r#","pid":1,"tid":1,"ts":1.5,"dur":2}"#),
                (r#"{"ph":"X","cat":"python_function","pid":1,"tid":1,"ts":1.5,"dur":2, "#, "\n}"),
            ] {
                let event = format!("{before}\"name\": \"{name}\"{after}");
                let text = format!("{event},{{\"ph\":\"X\"}}]");
                let shown = name.replace("\\\"", "\"");
                assert_eq!(read(&text), Some((event.len(), vec![shown])), "{text}");
            }
        }
    }

    #[test]
    fn other_damage_is_not_mended() {
        for text in [
            r#"{"ph":"X","name":"k<"a":1}"#,
            r#"{"ph":"X","name":"k","args":{""a":1}}"#,
            r#"{"ph":"X" "name":"a"b","ts":1}"#,
            r#"{"ph":"X","name":"a"b"#,
            "x",
        ] {
            assert_eq!(read(text), None, "{text}");
        }
    }

    #[test]
    fn what_a_lost_event_was_is_told_by_its_category_alone() {
        let of = |cat: &str, more: &str| format!(r#"{{"ph":"X","cat":"{cat}","name":"a"b,"ts":1{more}}}"#);
        assert!(is_aside(of("python_function", "").as_bytes()) && is_aside(of("cpu_op", "").as_bytes()));
        for cat in ["kernel", "cuda_runtime", "user_annotation", "gpu_memcpy", "new"] {
            assert!(!is_aside(of(cat, "").as_bytes()), "{cat}");
        }
        // what may hide others weighs as much as they
        let two = of("cpu_op", "") + &of("kernel", "");
        assert!(!is_aside(two.as_bytes()) && !is_aside(of("cpu_op", &" ".repeat(5000)).as_bytes()));
        assert!(!is_aside(of("cpu_op", "\u{1}").as_bytes()));
    }
}
