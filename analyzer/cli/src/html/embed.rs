// SPDX-License-Identifier: Apache-2.0
//! Figures and page in one file that needs no other: no address of the network stands in it, and
//! its own policy (Content-Security-Policy) forbids the browser any request.
//!
//! The figures lie in a `<script type="application/json">`. What could end that element, or begin a
//! comment in it, is `<`; it and its like are written as JSON's `\u003c`, so that no name of a
//! kernel is ever markup.

use std::fmt::Write;

use serde_json::Value;

const PAGE: &str = include_str!("page/page.html");
const STYLE: &str = include_str!("page/page.css");
/// In this order, inside one function.
const SCRIPTS: [&str; 6] = [
    include_str!("page/draw.js"),
    include_str!("page/verdict.js"),
    include_str!("page/charts.js"),
    include_str!("page/timeline.js"),
    include_str!("page/tables.js"),
    include_str!("page/main.js"),
];

/// The page. `title` and `line` are plain text.
pub(super) fn page(title: &str, line: &str, figures: &Value) -> String {
    let script = SCRIPTS.concat();
    let figures = inert(&figures.to_string());
    let (title, line) = (escaped(title), escaped(line));
    let filled = [
        ("{{title}}", title.as_str()),
        ("{{line}}", &line),
        ("{{style}}", STYLE),
        ("{{figures}}", &figures),
        ("{{script}}", &script),
    ];
    let mut out = String::with_capacity(PAGE.len() + STYLE.len() + script.len() + figures.len());
    let mut rest = PAGE;
    // one pass: what is filled in is not looked at again
    while let Some(at) = rest.find("{{") {
        let (before, from) = rest.split_at(at);
        out.push_str(before);
        match filled.iter().find(|(mark, _)| from.starts_with(mark)) {
            Some((mark, text)) => {
                out.push_str(text);
                rest = from.get(mark.len()..).unwrap_or("");
            }
            None => {
                out.push_str("{{");
                rest = from.get(2..).unwrap_or("");
            }
        }
    }
    out.push_str(rest);
    out
}

/// JSON that is the same to a JSON parser and nothing to an HTML parser. Outside of strings JSON
/// has none of these.
fn inert(json: &str) -> String {
    let mut out = String::with_capacity(json.len());
    for c in json.chars() {
        match c {
            '<' | '>' | '&' | '\'' | '\u{7f}'..='\u{9f}' | '\u{2028}' | '\u{2029}' => {
                let _ = write!(out, "\\u{:04x}", u32::from(c));
            }
            c => out.push(c),
        }
    }
    out
}

/// Text as HTML's text or attribute.
fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&#39;"),
            c => out.push(c),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn figures_are_inert_and_the_same_figures() {
        let figures = json!({"name": "</script><!--<script>&'\u{2028}\u{85}"});
        let text = inert(&figures.to_string());
        assert!(!text.contains(['<', '>', '&', '\'', '\u{2028}', '\u{85}']), "{text}");
        assert_eq!(serde_json::from_str::<Value>(&text).ok(), Some(figures));
    }

    #[test]
    fn what_is_filled_in_is_not_filled_again() {
        let page = page("{{figures}}<b>", "{{script}}", &json!({"a": "{{style}}"}));
        assert!(page.contains("<title>gapprobe: {{figures}}&lt;b&gt;</title>"));
        assert!(page.contains(r#"{"a":"{{style}}"}"#));
        assert_eq!(page.matches(STYLE).count(), 1);
    }

    #[test]
    fn the_page_names_no_address_and_its_parts_do_not_end_their_elements() {
        for part in SCRIPTS.iter().chain([&STYLE, &PAGE]) {
            assert!(!part.contains("://") && !part.contains("url("), "{part}");
        }
        for part in SCRIPTS.iter().chain([&STYLE]) {
            assert!(!part.contains("</") && !part.contains("<!--"), "{part}");
            assert!(!part.contains("innerHTML") && !part.contains("eval("), "{part}");
        }
    }
}
