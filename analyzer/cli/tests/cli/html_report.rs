// SPDX-License-Identifier: Apache-2.0
//! `report`: its examples; the figures in the page against the analysis; names that would be
//! markup; nothing from the network; no file lost.

use std::collections::BTreeMap;
use std::fs;
use std::io::Write;
use std::path::Path;
use std::process::Command;

use cli::html::{figures, page, After, Subject};
use formats::{Input, Progress};
use serde_json::{json, Value};
use trace::call::{pack, Class, RUNTIME};
use trace::{Event, Kind};
use verdict::analysis::{Analysis, Bucket, DeviceAnalysis};
use verdict::run::Span;

use crate::place::{code, err, out, recording, same_as_file, Place, BINARY};

pub(crate) fn repository(path: &str) -> String {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests").join(path).display().to_string()
}

pub(crate) fn read(path: &str) -> (Input, Analysis) {
    let input = formats::read(Path::new(path), &Progress::default()).unwrap_or_else(|e| panic!("{e}"));
    let analysis = verdict::analyze(&input.run);
    (input, analysis)
}

/// The figures that stand in a page.
fn inside(page: &str) -> Value {
    let (_, rest) = page.split_once(r#"<script type="application/json" id="figures">"#).unwrap();
    serde_json::from_str(rest.split_once("</script>").unwrap().0).unwrap()
}

pub(crate) fn number(value: &Value) -> u64 {
    value.as_u64().unwrap_or_else(|| panic!("{value} is no count"))
}

fn numbers(value: &Value) -> Vec<u64> {
    value.as_array().unwrap().iter().map(number).collect()
}

fn sum(list: &Value, key: &str) -> u64 {
    list.as_array().unwrap().iter().map(|v| number(&v[key])).sum()
}

/// Lists of parts, summed, by the legend's keys.
fn by_key(figures: &Value, parts: &[Vec<u64>]) -> BTreeMap<String, u64> {
    let keys = figures["buckets"].as_array().unwrap().iter().map(|b| b["key"].as_str().unwrap().to_owned());
    keys.enumerate().map(|(i, key)| (key, parts.iter().map(|p| p[i]).sum())).collect()
}

fn buckets(d: &DeviceAnalysis, only_gaps: bool) -> BTreeMap<String, u64> {
    let wanted = |b: Bucket| if b.is_gap() || !only_gaps { d.buckets.get(b) } else { 0 };
    Bucket::ALL.into_iter().map(|b| (b.key().to_owned(), wanted(b))).collect()
}

fn parts(list: &Value) -> Vec<Vec<u64>> {
    list.as_array().unwrap().iter().map(|b| numbers(&b["parts"])).collect()
}

#[test]
fn every_example_of_the_help_runs_and_says_where_the_page_is() {
    let place = Place::new("report-examples");
    for name in ["trace.json.gz", "fixed.json.gz"] {
        let file = fs::File::create(place.out().join(name)).unwrap();
        let mut gz = flate2::write::GzEncoder::new(file, flate2::Compression::fast());
        gz.write_all(&fs::read(repository("tables/three_steps.json")).unwrap()).unwrap();
        gz.finish().unwrap();
    }
    let help = out(&place.run(&["report", "--help"]));
    let examples: Vec<&str> = help
        .lines()
        .skip(1)
        .take_while(|l| l.starts_with("  gapprobe report"))
        .map(|l| l.trim().split("   ").next().unwrap())
        .collect();
    assert!(examples.len() >= 3, "{help}");
    let folder = Path::new(BINARY).parent().unwrap().display().to_string();
    let path = format!("{folder}:{}", std::env::var("PATH").unwrap_or_default());
    for example in examples {
        let mut shell = Command::new("sh");
        let output =
            shell.args(["-ec", example]).current_dir(place.out()).env("PATH", &path).output().unwrap();
        assert_eq!((code(&output), err(&output).as_str()), (0, ""), "{example}");
        let page = fs::read_to_string(place.out().join(out(&output).trim_end())).unwrap();
        assert!(page.starts_with("<!doctype html>") && page.ends_with("</html>\n"), "{example}");
    }
    assert_eq!(
        place.results(),
        ["fixed.json.gz", "trace-to-fixed.report.html", "trace.json.gz", "trace.report.html", "why.html"]
    );
}

#[test]
fn the_figures_are_those_of_the_analysis() {
    let mut with_ranges = 0;
    for file in [
        "traces/h200_tiny.json.gz",
        "traces/h200_graphs.json.gz",
        "recordings/own_gpt_item.gprec.gz",
        "recordings/own_host_sleep.gprec.gz",
        "tables/three_steps.json",
    ] {
        let (input, analysis) = read(&repository(file));
        let f = figures(&Subject { name: file, input: &input, analysis: &analysis }, None);
        let d = &f["runs"][0]["device"];
        let found = &analysis.devices[analysis.worst.unwrap()];

        assert_eq!(number(&d["wall_ns"]), found.wall_ns, "{file}");
        assert_eq!(by_key(&f, &[numbers(&d["buckets"]["ns"])]), buckets(found, false), "{file}");
        assert_eq!(numbers(&d["buckets"]["ns"]).iter().sum::<u64>(), found.wall_ns, "{file}");
        assert_eq!(numbers(&d["buckets"]["tenths"]).iter().sum::<u64>(), 1000, "{file}: 100%");

        let bars = d["steps"]["bars"].as_array().unwrap();
        assert_eq!(sum(&d["steps"]["bars"], "steps"), analysis.steps.steps.len() as u64, "{file}");
        for bar in bars {
            let parts = numbers(&bar["parts"]).iter().sum::<u64>();
            assert_eq!(parts + number(&bar["not_seen_ns"]), number(&bar["ns"]), "{file}: {bar}");
        }
        let steady = Value::Array(bars.iter().filter(|b| b["warm_up"] == false).cloned().collect());
        assert_eq!(sum(&steady, "ns"), analysis.steps.steady_ns, "{file}");
        if analysis.steps.steady_ns == found.wall_ns {
            // side by side and observed: the steps' parts are the whole's
            assert_eq!(by_key(&f, &parts(&steady)), buckets(found, false), "{file}");
        }

        let idle = found.buckets.idle();
        assert_eq!(sum(&d["gaps"]["bins"], "ns"), idle, "{file}");
        assert_eq!(by_key(&f, &parts(&d["gaps"]["bins"])), buckets(found, true), "{file}");
        assert_eq!(sum(&d["gaps"]["bins"], "count"), number(&d["gaps"]["count"]), "{file}");
        assert_eq!(number(&d["durations"]["count"]), found.kernels, "{file}");
        assert_eq!(sum(&d["durations"]["bins"], "count"), found.kernels, "{file}");
        let kernels = &d["kernels"];
        assert_eq!(number(&kernels["count"]), found.kernels, "{file}");
        assert_eq!(number(&kernels["ns"]), sum(&d["durations"]["bins"], "ns"), "{file}");
        for key in ["ns", "count"] {
            assert_eq!(
                sum(&kernels["rows"], key) + number(&kernels["others"][key]),
                number(&kernels[key]),
                "{file}"
            );
        }
        if !d["idle_by_range"].is_null() {
            with_ranges += 1;
            assert_eq!(number(&d["idle_by_range"]["root"]["ns"]), idle, "{file}");
        }
        let verdict = &f["runs"][0]["verdict"];
        let line = verdict::output::sentence::line(&input.run, &analysis, None);
        assert_eq!(line, format!("gapprobe: {}", verdict["sentence"].as_str().unwrap()), "{file}");
        assert_eq!(
            verdict["evidence"],
            serde_json::json!(verdict::output::line::evidence(&input.run, &analysis)),
            "{file}"
        );
    }
    assert!(with_ranges >= 1);
}

/// Holds the timeline against what lies in the span of step `number`.
fn timeline_holds(input: &Input, analysis: &Analysis, number_of: u32) {
    let f = figures(&Subject { name: "a", input, analysis }, None);
    let t = &f["runs"][0]["device"]["timeline"];
    assert_eq!(number(&t["step"]), u64::from(number_of));
    let step = analysis.steps.steady().iter().find(|s| s.number == number_of).unwrap();
    let window: Span = step.span;
    assert_eq!(number(&t["length_ns"]), window.ns());

    let inside = |s: &Span| s.start < window.end && s.end > window.start;
    let time = |spans: &[Span]| spans.iter().map(|s| s.clip(window).ns()).sum::<u64>();
    let worst = analysis.worst.unwrap();
    let ops = input.run.devices[worst].streams.iter().flat_map(|s| &s.ops);
    let ops: Vec<Span> = ops.map(|o| o.span()).filter(inside).collect();
    let rows = t["streams"].as_array().unwrap();
    let shown: Vec<&Value> = rows.iter().flat_map(|r| r["items"].as_array().unwrap()).collect();
    assert_eq!(shown.iter().map(|i| number(&i[4])).sum::<u64>(), ops.len() as u64);
    assert_eq!(shown.iter().map(|i| number(&i[5])).sum::<u64>(), time(&ops));

    let slices = analysis.devices[worst].slices.iter().map(|s| s.span()).filter(inside);
    let slices: Vec<Span> = slices.collect();
    let idle: u64 = t["idle"].as_array().unwrap().iter().map(|i| number(&i[1])).sum();
    assert_eq!(idle + number(&t["idle_left_out_ns"]), time(&slices));
    let items = shown.into_iter().chain(t["idle"].as_array().unwrap());
    assert!(items.into_iter().all(|i| number(&i[0]) + number(&i[1]) <= window.ns()), "inside the window");
}

#[test]
fn the_step_in_detail_is_a_typical_one_and_holds_what_ran_in_it() {
    for file in ["traces/h200_tiny.json.gz", "recordings/own_gpt_item.gprec.gz", "tables/three_steps.json"] {
        let (input, mut analysis) = read(&repository(file));
        let steps = &analysis.steps;
        let nearest = steps.steady().iter().min_by_key(|s| s.span.ns().abs_diff(steps.median_ns)).unwrap();
        let wanted = nearest.number;
        timeline_holds(&input, &analysis, wanted);
        // the same with borders in the middle of operations
        let at = analysis.steps.steps.iter().position(|s| s.number == wanted).unwrap();
        let step = analysis.steps.steps[at].span;
        let ops = &input.run.devices[analysis.worst.unwrap()].streams[0].ops;
        let of_step: Vec<_> = ops.iter().filter(|o| o.start >= step.start && o.end <= step.end).collect();
        let middle = |i: usize| (of_step[i].start + of_step[i].end) / 2;
        let cut = Span::new(middle(of_step.len() / 16), middle(of_step.len() * 15 / 16));
        analysis.steps.steps[at].span = cut;
        analysis.steps.median_ns = cut.ns();
        timeline_holds(&input, &analysis, wanted);
    }
}

#[test]
fn the_figures_of_the_small_trace_are_as_agreed() {
    let (input, analysis) = read(&repository("tables/three_steps.json"));
    let mut f = figures(&Subject { name: "three_steps.json", input: &input, analysis: &analysis }, None);
    f["gapprobe"] = json!("any");
    same_as_file("html-figures", &format!("{f:#}\n"));
}

#[test]
fn before_and_after_say_what_diff_says() {
    let paths = ["recordings/own_gpt_item.gprec.gz", "recordings/own_gpt_item_fixed.gprec.gz"];
    let both = paths.map(|p| read(&repository(p)));
    let subject = |i: usize| Subject { name: paths[i], input: &both[i].0, analysis: &both[i].1 };
    let change = |same_work| {
        let after = After { subject: &subject(1), same_work };
        figures(&subject(0), Some(after))["change"].take()
    };
    let place = Place::new("report-diff");
    let files = paths.map(repository);
    for same_work in [false, true] {
        let options: &[&str] =
            if same_work { &["diff", "--json", "--same-work"] } else { &["diff", "--json"] };
        let diff = place.run(&[options, &[&files[0], &files[1]]].concat());
        let diff: Value = serde_json::from_str(&out(&diff)).unwrap();
        let change = change(same_work);
        assert_eq!(change["result"], diff["result"]);
        // the files' names stand in neither
        assert_eq!(format!("gapprobe diff: {}", change["line"].as_str().unwrap()), diff["line"]);
        assert_eq!(change["cautions"], diff["cautions"]);
    }
    let change = change(false);
    for (i, key) in ["a", "b"].into_iter().enumerate() {
        let analysis = &both[i].1;
        let parts = change["parts"].as_array().unwrap().iter().chain([&change["not_seen"]]);
        let parts: f64 = parts.map(|p| p[key].as_f64().unwrap()).sum();
        assert!((parts - analysis.steps.mean_ns).abs() < 1.0, "{change}");
        assert!((change["step"][key].as_f64().unwrap() - analysis.steps.mean_ns).abs() < 1.0);
        assert_eq!(number(&change["steps"][i]), analysis.steps.steady().len() as u64);
    }
    let by = |k: &Value| (k["ns"][1].as_f64().unwrap() - k["ns"][0].as_f64().unwrap()).abs();
    let by: Vec<f64> = change["kernels"].as_array().unwrap().iter().map(by).collect();
    assert!(by.len() > 3 && by.is_sorted_by(|a, b| a >= b) && by.iter().all(|b| *b > 0.0), "{by:?}");
    // a run against itself: nothing moved
    let same = &figures(&subject(0), Some(After { subject: &subject(0), same_work: false }))["change"];
    assert_eq!((&same["kernels"], &same["result"]), (&json!([]), &json!("no_difference")));
    assert!(same["parts"].as_array().unwrap().iter().all(|p| p["moved"] == false), "{same}");
}

/// Kernel, range and file names that end scripts, open tags, break out of attributes and turn the
/// text around.
pub(crate) const HOSTILE: &str =
    "</script><img src=http://x/ onerror=alert(1)>\"'`&amp;<!--\u{202e}\u{2066}\u{200b}\u{2028}{{figures}}";

#[test]
fn no_name_is_ever_markup() {
    let place = Place::new("report-hostile");
    let bytes = recording(|b| {
        let (kernel, range) = (b.kernel(HOSTILE, 1, 1), b.string(HOSTILE));
        b.header.command = HOSTILE.into();
        for step in 0..300u64 {
            let begin = 1_000_000_000 + step * 1_000_000;
            let mut e = Event::new(Kind::Range, begin, begin + 900_000);
            e.a = range;
            b.on_thread(100, e);
            let mut op = Event::new(Kind::Kernel, begin + 620_000, begin + 700_000);
            (op.a, op.b) = (kernel, 1);
            b.on_stream(0, 1, 8, op);
        }
    });
    let name = "<b>\"'><svg onload=alert(1)> \u{202e}.gpr";
    fs::write(place.out().join(name), bytes).unwrap();
    let output = place.run(&["report", name, "-o", "page.html"]);
    assert_eq!(code(&output), 0, "{}", err(&output));
    let page = fs::read_to_string(place.out().join("page.html")).unwrap();
    let f = inside(&page);
    // the names are there ...
    let seen = "</script><img src=http://x/ onerror=alert(1)>\"'`&amp;<!--\\u{202e}\\u{2066}\\u{200b}\\u{2028}{{figures}}";
    let rows = f["runs"][0]["device"]["kernels"]["rows"].as_array().unwrap();
    assert!(rows.iter().any(|r| r["name"] == *seen || r["whole"] == *seen), "{rows:?}");
    let names = f["runs"][0]["device"]["timeline"]["names"].as_array().unwrap();
    assert!(names.iter().any(|n| n.as_str().unwrap().starts_with("</script><img src=http")), "{names:?}");
    for tree in ["idle_by_range", "gpu_time"] {
        assert!(f["runs"][0]["device"][tree]["root"].to_string().contains("onerror"), "{tree}");
    }
    assert_eq!(f["runs"][0]["file"], "<b>\"'><svg onload=alert(1)> \\u{202e}.gpr");
    // ... and none of them is anything but text
    for markup in ["<img", "<svg onload", "<b>\"", "</script><img", "<!--\u{202e}"] {
        assert!(!page.contains(markup), "{markup}");
    }
    let (plain, own) =
        (page.to_ascii_lowercase(), fs::read_to_string(repository("../src/html/page/page.html")).unwrap());
    for tag in ["<script", "</script", "<!--", "<svg", "<style", "<noscript"] {
        assert_eq!(plain.matches(tag).count(), own.matches(tag).count(), "{tag}");
    }
    for hidden in ['\u{202e}', '\u{2066}', '\u{200b}', '\u{2028}'] {
        assert!(!page.contains(hidden), "{hidden:?}");
    }
}

#[test]
fn nothing_of_the_page_comes_from_the_network() {
    let (input, analysis) = read(&repository("traces/h200_tiny.json.gz"));
    let page = page(&Subject { name: "a", input: &input, analysis: &analysis }, None);
    assert!(page.contains("default-src 'none'"), "the browser is told so too");
    for attribute in ["src", "href", "action", "srcset", "data", "poster"] {
        for value in page.split(&format!(" {attribute}=")).skip(1) {
            let value = value.trim_start_matches('"');
            assert!(value.starts_with('#') || value.starts_with("data:,"), "{attribute}={value:.60}");
        }
    }
    for word in
        ["://", "@import", "url(", "fetch(", "XMLHttpRequest", "WebSocket", "sendBeacon", "importScripts"]
    {
        assert!(!page.contains(word), "{word}");
    }
}

#[test]
fn a_large_trace_makes_a_small_page_that_says_what_is_left_out() {
    // 40 more operations a step than the recording's own, on three streams; 20,000 in one step
    let bytes = recording(|b| {
        let kernels: Vec<u32> =
            (0..400).map(|i| b.kernel(&format!("kernel_{i}_{}", "x".repeat(300)), 1, 1)).collect();
        let mut correlation = 1_000_000;
        for step in 0..300u64 {
            for i in 0..if step == 150 { 20_000 } else { 40 } {
                let start = 1_000_000_000 + step * 1_000_000 + i * 45;
                correlation += 1;
                let mut call = Event::new(Kind::Call, start, start + 20);
                (call.a, call.x, call.correlation) = (pack(RUNTIME, 211), Class::Launch as u8, correlation);
                b.on_thread(101, call);
                let mut op = Event::new(Kind::Kernel, start + 20, start + 40);
                (op.a, op.b, op.correlation) = (kernels[(i % 400) as usize], 1, correlation);
                b.on_stream(0, 1, 9 + (i % 3) as u32, op);
            }
        }
    });
    let place = Place::new("report-large");
    let file = place.out().join("large.gpr");
    fs::write(&file, bytes).unwrap();
    let (input, mut analysis) = read(&file.display().to_string());
    // the crowded step is the typical one
    let crowded = analysis.steps.steps.iter().position(|s| s.number == 150).unwrap();
    analysis.steps.steps[crowded].span.end -= 1;
    analysis.steps.median_ns = analysis.steps.steps[crowded].span.ns();
    analysis.steps.warm_up = 3;
    for step in &mut analysis.steps.steps[..3] {
        step.warm_up = true;
    }
    let subject = Subject { name: "large.gpr", input: &input, analysis: &analysis };
    let page = page(&subject, None);
    assert!(page.len() < 600_000, "{}", page.len());
    let f = inside(&page);
    let d = &f["runs"][0]["device"];
    let t = &d["timeline"];
    assert_eq!(number(&t["step"]), 150);
    for (rows, most) in [("streams", 4_000), ("threads", 3_000)] {
        let rows_of = t[rows].as_array().unwrap();
        assert!(
            rows_of.iter().map(|r| r["items"].as_array().unwrap().len()).sum::<usize>() <= most,
            "{rows}"
        );
        let slices: u64 =
            rows_of.iter().flat_map(|r| r["items"].as_array().unwrap()).map(|i| number(&i[4])).sum();
        assert!(slices > 20_000, "{rows}: {slices}: every one of them is in some run");
        assert!(number(&t[format!("{rows}_drawn_as_one_below_ns")]) > 0, "{rows}: the page says it");
    }
    assert!(t["idle"].as_array().unwrap().len() <= 2_000);
    assert!(d["steps"]["bars"].as_array().unwrap().len() <= 240);
    assert_eq!(sum(&d["steps"]["bars"], "steps"), 300);
    let bars = d["steps"]["bars"].as_array().unwrap();
    let warm_up: u64 = bars.iter().filter(|b| b["warm_up"] == true).map(|b| number(&b["steps"])).sum();
    assert_eq!(warm_up, 3, "no bar is warm-up in part");
    assert_eq!(d["kernels"]["rows"].as_array().unwrap().len(), 50);
    assert_eq!(number(&d["kernels"]["others"]["names"]), number(&d["kernels"]["names"]) - 50);
}

#[test]
fn a_run_without_steps_or_gpu_has_a_page_too() {
    let (mut input, _) = read(&repository("recordings/own_gpt_item.gprec.gz"));
    for thread in &mut input.run.threads {
        thread.marks.clear();
    }
    let analysis = verdict::analyze(&input.run);
    let mut none = analysis.clone();
    none.steps = Default::default();
    let f = figures(&Subject { name: "a", input: &input, analysis: &none }, None);
    let d = &f["runs"][0]["device"];
    assert!(d["steps"].is_null() && d["timeline"]["step"].is_null());
    assert!(number(&d["timeline"]["length_ns"]) > 0);
    // and nothing of the GPU at all
    input.run.devices.clear();
    let analysis = verdict::analyze(&input.run);
    let subject = Subject { name: "a", input: &input, analysis: &analysis };
    let f = figures(&subject, Some(After { subject: &subject, same_work: false }));
    assert!(f["runs"][0]["device"].is_null() && f["change"]["parts"].is_null());
    assert!(!f["runs"][0]["verdict"]["sentence"].as_str().unwrap().is_empty());
}

#[test]
fn no_file_is_lost() {
    let place = Place::new("report-files");
    let trace = repository("tables/three_steps.json");
    fs::write(place.out().join("three_steps.report.html"), "mine").unwrap();
    let output = place.run(&["report", &trace]);
    assert_eq!((code(&output), out(&output).as_str()), (1, ""));
    assert_eq!(
        err(&output),
        "gapprobe: three_steps.report.html is there already\n\nhint: --force replaces it, -o names another\n"
    );
    assert_eq!(fs::read_to_string(place.out().join("three_steps.report.html")).unwrap(), "mine");
    // a link to nowhere is a file too
    std::os::unix::fs::symlink("nowhere", place.out().join("link.html")).unwrap();
    assert_eq!(code(&place.run(&["report", &trace, "-o", "link.html"])), 1);

    let output = place.run(&["report", &trace, "--force"]);
    assert_eq!((code(&output), out(&output).as_str()), (0, "three_steps.report.html\n"));
    assert!(fs::read_to_string(place.out().join("three_steps.report.html"))
        .unwrap()
        .starts_with("<!doctype"));
    for bad in [".", "no/such/folder/a.html"] {
        let output = place.run(&["report", &trace, "-o", bad, "--force"]);
        assert!(
            [1, 2].contains(&code(&output)) && err(&output).contains("hint: "),
            "{bad}: {}",
            err(&output)
        );
    }
    assert_eq!(code(&place.run(&["report", "nowhere.json"])), 4);
    assert_eq!(code(&place.run(&["report", &trace, "nowhere.json"])), 4);
    assert_eq!(place.results(), ["link.html", "three_steps.report.html"], "nothing half written");
}
