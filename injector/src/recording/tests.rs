// SPDX-License-Identifier: Apache-2.0
// WARM
use super::*;
use crate::store::Store;
use trace::define::TrackInfo;
use trace::event::{Event, Kind};
use trace::reader::Recording;

#[test]
fn a_descriptor_that_became_the_programs_is_not_written_to() {
    let mut store = Store::new(Image::map(64 * 32 * 1024).unwrap());
    let name = format!("test-taken-{}.gpr", std::process::id());
    let mut mirror = Mirror::create(&name, store.image.segments()).unwrap();
    let other = std::env::temp_dir().join(format!("gapprobe-test-taken-{}", std::process::id()));
    let file = std::fs::File::create(&other).unwrap();
    // SAFETY: puts the program's file under our number, as a program that closes and reopens everything does.
    assert!(unsafe { libc::dup2(file.as_raw_fd(), mirror.file.as_raw_fd()) } >= 0);
    store.string(b"something to write");
    assert!(!mirror.update(&store.image.clone(), &store.standing(Header::default())).is_empty());
    assert_eq!(std::fs::metadata(&other).unwrap().len(), 0);
    std::fs::remove_file(&other).unwrap();
    mirror.remove();
}

#[test]
fn after_each_update_the_file_is_a_recording_with_all_events_so_far() {
    let mut store = Store::new(Image::map(64 * 32 * 1024).unwrap());
    let name = format!("test-mirror-{}.gpr", std::process::id());
    let mut mirror = Mirror::create(&name, store.image.segments()).unwrap();
    let mut sent = 0u64;
    for round in 0..60 {
        for _ in 0..round * 97 {
            store.add(
                TrackInfo::Stream { device: 0, context: 1, stream: 7 },
                &Event::new(Kind::Kernel, sent * 10, sent * 10 + 5),
            );
            sent += 1;
        }
        store.string(format!("name {round}").as_bytes());
        let header = Header {
            segments: store.image.segments(),
            segments_used: store.begun(),
            valid_from: store.valid_from(),
            ..Header::default()
        };
        assert!(mirror.update(&store.image.clone(), &store.standing(header)).is_empty());
        let bytes = std::fs::read(&mirror.path).unwrap();
        let mut r = Recording::open(bytes.as_slice()).unwrap();
        let mut newest = 0;
        let mut kept = 0u64;
        r.for_each_event(bytes.as_slice(), |_, e| {
            newest = newest.max(e.end);
            kept += u64::from(e.start >= store.valid_from());
        });
        assert_eq!(r.problems, Default::default());
        if sent > 0 {
            assert_eq!(newest, (sent - 1) * 10 + 5);
            assert_eq!(kept, sent - store.valid_from().div_ceil(10));
        }
    }
    assert!(store.valid_from() > 0, "the ring was lapped");
    mirror.remove();
    assert!(!mirror.path.exists());
}

#[test]
fn what_was_written_anew_before_it_was_copied_is_not_promised() {
    let mut store = Store::new(Image::map(64 * 32 * 1024).unwrap());
    let name = format!("test-lapped-{}.gpr", std::process::id());
    let mut mirror = Mirror::create(&name, store.image.segments()).unwrap();
    let mut sent = 0u64;
    let mut fill = |store: &mut Store, events: u64| {
        for _ in 0..events {
            let event = Event::new(Kind::Kernel, sent * 10, sent * 10 + 5);
            store.add(TrackInfo::Stream { device: 0, context: 1, stream: 7 }, &event);
            sent += 1;
        }
    };
    let stand = |store: &mut Store| {
        let (segments, segments_used) = (store.image.segments(), store.begun());
        let valid_from = store.valid_from();
        store.standing(Header {
            segments,
            segments_used,
            valid_from,
            host_complete_to: u64::MAX,
            ..Header::default()
        })
    };
    for events in [10_000, 60_000, 70_000, 90_000, 200] {
        // the disk takes its time: meanwhile a part of it, most of it, all of it is written anew
        let standing = stand(&mut store);
        fill(&mut store, events);
        assert!(mirror.update(&store.image.clone(), &standing).is_empty());
        let bytes = std::fs::read(&mirror.path).unwrap();
        let mut r = Recording::open(bytes.as_slice()).unwrap();
        let valid_from = r.header.valid_from;
        assert_eq!(valid_from, store.valid_from());
        let mut found = Vec::new();
        r.for_each_event(bytes.as_slice(), |_, e| found.push(e.start));
        assert_eq!(r.problems, Default::default());
        found.retain(|start| *start >= valid_from);
        found.sort_unstable();
        let all: Vec<u64> = (valid_from.div_ceil(10)..).map(|n| n * 10).take(found.len()).collect();
        assert_eq!(found, all, "from where it is valid on none is missing");
    }
    assert!(mirror.update(&store.image.clone(), &stand(&mut store)).is_empty());
    let bytes = std::fs::read(&mirror.path).unwrap();
    let mut newest = 0;
    Recording::open(bytes.as_slice())
        .unwrap()
        .for_each_event(bytes.as_slice(), |_, e| newest = newest.max(e.end));
    assert_eq!(newest, (sent - 1) * 10 + 5);
    mirror.remove();
}

#[test]
fn a_file_that_is_cut_in_an_update_promises_what_it_holds() {
    let mut store = Store::new(Image::map(64 * 32 * 1024).unwrap());
    let name = format!("test-cut-{}.gpr", std::process::id());
    let mut mirror = Mirror::create(&name, store.image.segments()).unwrap();
    let mut sent = 0u64;
    let mut stand = |store: &mut Store, events: u64| {
        for _ in 0..events {
            let event = Event::new(Kind::Kernel, sent * 10, sent * 10 + 5);
            store.add(TrackInfo::Stream { device: 0, context: 1, stream: 7 }, &event);
            sent += 1;
        }
        let (segments, segments_used) = (store.image.segments(), store.begun());
        let (valid_from, host_complete_to) = (store.valid_from(), sent * 10);
        store.standing(Header { segments, segments_used, valid_from, host_complete_to, ..Header::default() })
    };
    let standing = stand(&mut store, 90_000);
    assert!(mirror.update(&store.image.clone(), &standing).is_empty());
    for events in [500, 5_000, 70_000] {
        let Standing { segments, header } = stand(&mut store, events);
        // killed behind each of them, and before the header
        for segment in segments {
            let part = Standing { segments: vec![segment], header: header.clone() };
            assert!(mirror.segments(&store.image.clone(), &part).is_empty());
            let bytes = std::fs::read(&mirror.path).unwrap();
            let mut r = Recording::open(bytes.as_slice()).unwrap();
            let promised = (r.header.valid_from, r.header.host_complete_to);
            let mut found = Vec::new();
            r.for_each_event(bytes.as_slice(), |_, e| found.push(e.start));
            found.sort_unstable();
            for n in promised.0.div_ceil(10)..promised.1 / 10 {
                assert!(found.binary_search(&(n * 10)).is_ok(), "{n} of {promised:?}");
            }
        }
        let rest = Standing { segments: Vec::new(), header };
        assert!(mirror.update(&store.image.clone(), &rest).is_empty());
    }
    mirror.remove();
}

#[test]
fn an_unfinished_file_names_this_process_and_a_sweep_leaves_it_alone() {
    let name = format!("test-unfinished-{}.gpr", std::process::id());
    let mirror = Mirror::create(&name, 64).unwrap();
    let unfinished = mirror.unfinished.clone().unwrap();
    let shown = unfinished.file_name().unwrap().to_str().unwrap();
    let (recording, owner) = place::parse_unfinished(shown, place::NEW).unwrap();
    assert_eq!((recording, owner), (name.as_str(), Some(analyzer::alive::own())));
    analyzer::report::leftovers::recordings(unfinished.parent().unwrap(), None);
    assert!(unfinished.exists(), "its process lives");
    mirror.remove();
    assert!(!unfinished.exists());
}
