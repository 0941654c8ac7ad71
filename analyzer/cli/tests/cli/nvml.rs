// SPDX-License-Identifier: Apache-2.0
//! "100 % utilised, and slow": what NVML says beside what ran, on the screen, in the object and on
//! the page; reasons for low clocks by name.

use std::fs;
use std::path::Path;

use serde_json::Value;
use trace::event::Gauge;
use trace::{Event, Kind};

use crate::html_page::{looked_at, node_is_here};
use crate::place::{out, recording, Place};

/// Text of the screen and of the page, and the object.
fn shown(place: &Place, path: &str) -> (String, String, Value) {
    let flat = |text: String| text.split_whitespace().collect::<Vec<_>>().join(" ");
    let screen = flat(out(&place.run(&["analyze", path])));
    let object: Value = serde_json::from_str(&out(&place.run(&["analyze", "--json", path]))).unwrap();
    let page = looked_at(place, &[path])["seen"].as_array().unwrap().clone();
    let page = page.iter().map(|t| t.as_str().unwrap()).collect::<Vec<_>>().join(" ");
    (screen, flat(page), object["gauges"].clone())
}

#[test]
fn an_h200_that_waits_says_so() {
    if !node_is_here() {
        return;
    }
    let place = Place::new("nvml-h200");
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/cli/h200_gil.gprec.gz");
    let (screen, page, gauges) = shown(&place, &path.display().to_string());
    let number = |key: &str| gauges[key].as_f64().unwrap();
    assert!(number("utilization_pct") < 5.0 && number("power_limit_w") == 700.0, "{gauges}");
    assert!((100.0..200.0).contains(&number("power_w")), "{gauges}");
    let said = format!("{:.0} of 700 W, {:.0} of 1980 MHz", number("power_w"), number("sm_clock_mhz"));
    for text in [&screen, &page] {
        assert!(
            text.contains(&said) && text.contains("something ran on the GPU 1% of the time"),
            "{said}\n{text}"
        );
        assert!(!text.contains("Clocks held down"), "{text}");
    }
}

#[test]
fn full_by_nvml_cool_and_throttled() {
    if !node_is_here() {
        return;
    }
    // 300 steps of 1 ms, 600 us of each busy
    let bytes = recording(|b| {
        for n in 0..15u64 {
            let at = 1_000_000_000 + n * 20_000_000;
            let thermal = if n < 6 { 0x40 } else { 0x1 };
            for (gauge, value) in [
                (Gauge::Utilization, 100),
                (Gauge::PowerMw, 210_000),
                (Gauge::PowerLimitMw, 700_000),
                (Gauge::SmClockMhz, 1_200),
                (Gauge::SmClockMaxMhz, 1_980),
                (Gauge::ThrottleReasons, thermal),
            ] {
                let mut e = Event::new(Kind::Gauge, at, at);
                (e.a, e.b, e.c) = (gauge as u32, value, 0);
                b.on_recorder(e);
            }
        }
    });
    let place = Place::new("nvml-full");
    fs::write(place.out().join("full.gpr"), bytes).unwrap();
    let (screen, page, gauges) = shown(&place, "full.gpr");
    assert_eq!(gauges["clocks_held_down"][0]["by"], "heat (hardware)", "{gauges}");
    for text in [&screen, &page] {
        assert!(text.contains("utilisation 100%, 210 of 700 W, 1200 of 1980 MHz"), "{text}");
        assert!(text.contains("60% of the time: NVML counts periods in which any kernel ran"), "{text}");
        assert!(text.contains("Clocks held down by heat (hardware) in 40% of the readings"), "{text}");
    }
}
