// SPDX-License-Identifier: Apache-2.0
// WARM
use super::*;
use crate::store::Store;
use trace::define::TrackInfo;
use trace::event::{Event, Kind};
use trace::reader::Recording;

/// A store whose kernels begin every 10 ns, and their file.
struct Run {
    store: Store,
    mirror: SpoolWriter,
    sent: u64,
}

impl Run {
    fn new(name: &str) -> Run {
        let store = Store::new(Image::map(64 * 32 * 1024).unwrap());
        let name = format!("test-{name}-{}.gpr", std::process::id());
        let mirror = SpoolWriter::create(&name, store.image.segments()).unwrap();
        Run { store, mirror, sent: 0 }
    }

    fn launch(&mut self, events: u64) {
        for _ in 0..events {
            let event = Event::new(Kind::Kernel, self.sent * 10, self.sent * 10 + 5);
            self.store.add(TrackInfo::Stream { device: 0, context: 1, stream: 7 }, &event);
            self.sent += 1;
        }
    }

    fn standing(&mut self) -> Snapshot {
        let (segments, segments_used) = (self.store.image.segments(), self.store.begun());
        let (valid_from, host_complete_to) = (self.store.valid_from(), self.sent * 10);
        let header = Header { segments, segments_used, valid_from, host_complete_to, ..Header::default() };
        self.store.standing(header)
    }

    fn update(&mut self, standing: &Snapshot) {
        assert!(self.mirror.update(&self.store.image, standing).is_empty());
    }

    /// The file's header, and when the kernels in it begin, in order.
    fn read(&self) -> (Header, Vec<u64>) {
        let bytes = std::fs::read(&self.mirror.path).unwrap();
        let mut recording = Recording::open(bytes.as_slice()).unwrap();
        let mut starts = Vec::new();
        recording.for_each_event(bytes.as_slice(), |_, e| starts.push(e.start));
        assert_eq!(recording.problems, Default::default());
        starts.sort_unstable();
        (recording.header, starts)
    }
}

#[test]
fn a_descriptor_that_became_the_programs_is_not_written_to() {
    let mut store = Store::new(Image::map(64 * 32 * 1024).unwrap());
    let name = format!("test-taken-{}.gpr", std::process::id());
    let mut mirror = SpoolWriter::create(&name, store.image.segments()).unwrap();
    let other = std::env::temp_dir().join(format!("gapprobe-test-taken-{}", std::process::id()));
    let file = std::fs::File::create(&other).unwrap();
    // SAFETY: puts the program's file under our number, as a program that closes and reopens
    // everything does.
    assert!(unsafe { libc::dup2(file.as_raw_fd(), mirror.file.as_raw_fd()) } >= 0);
    store.string(b"something to write");
    assert!(!mirror.update(&store.image.clone(), &store.standing(Header::default())).is_empty());
    assert_eq!(std::fs::metadata(&other).unwrap().len(), 0);
    std::fs::remove_file(&other).unwrap();
    mirror.remove();
}

#[test]
fn after_each_update_the_file_is_a_recording_with_all_events_so_far() {
    let mut run = Run::new("mirror");
    for round in 0..60 {
        run.launch(round * 97);
        run.store.string(format!("name {round}").as_bytes());
        let standing = run.standing();
        run.update(&standing);
        let bytes = std::fs::read(&run.mirror.path).unwrap();
        let mut r = Recording::open(bytes.as_slice()).unwrap();
        let mut newest = 0;
        let mut kept = 0u64;
        r.for_each_event(bytes.as_slice(), |_, e| {
            newest = newest.max(e.end);
            kept += u64::from(e.start >= run.store.valid_from());
        });
        assert_eq!(r.problems, Default::default());
        if run.sent > 0 {
            assert_eq!(newest, (run.sent - 1) * 10 + 5);
            assert_eq!(kept, run.sent - run.store.valid_from().div_ceil(10));
        }
    }
    assert!(run.store.valid_from() > 0, "the ring was lapped");
    run.mirror.remove();
    assert!(!run.mirror.path.exists());
}

#[test]
fn what_was_written_anew_before_it_was_copied_is_not_promised() {
    let mut run = Run::new("lapped");
    for events in [10_000, 60_000, 70_000, 90_000, 200] {
        // the disk takes its time: meanwhile a part of it, most of it, all of it is written anew
        let standing = run.standing();
        run.launch(events);
        run.update(&standing);
        let (header, mut found) = run.read();
        assert_eq!(header.valid_from, run.store.valid_from());
        found.retain(|start| *start >= header.valid_from);
        let all: Vec<u64> = (header.valid_from.div_ceil(10)..).map(|n| n * 10).take(found.len()).collect();
        assert_eq!(found, all, "from where it is valid on none is missing");
    }
    let standing = run.standing();
    run.update(&standing);
    assert_eq!(run.read().1.last(), Some(&((run.sent - 1) * 10)));
    run.mirror.remove();
}

#[test]
fn a_file_that_is_cut_in_an_update_promises_what_it_holds() {
    let mut run = Run::new("cut");
    run.launch(90_000);
    let standing = run.standing();
    run.update(&standing);
    for events in [500, 5_000, 70_000] {
        run.launch(events);
        let Snapshot { segments, header } = run.standing();
        // killed behind each of them, and before the header
        for segment in segments {
            let part = Snapshot { segments: vec![segment], header: header.clone() };
            assert!(run.mirror.segments(&run.store.image, &part).is_empty());
            let (promised, found) = run.read();
            for n in promised.valid_from.div_ceil(10)..promised.host_complete_to / 10 {
                assert!(found.binary_search(&(n * 10)).is_ok(), "{n} of {promised:?}");
            }
        }
        run.update(&Snapshot { segments: Vec::new(), header });
    }
    run.mirror.remove();
}

#[test]
fn an_unfinished_file_names_this_process_and_a_sweep_leaves_it_alone() {
    let name = format!("test-unfinished-{}.gpr", std::process::id());
    let mirror = SpoolWriter::create(&name, 64).unwrap();
    let unfinished = mirror.unfinished.clone().unwrap();
    let shown = unfinished.file_name().unwrap().to_str().unwrap();
    let (recording, owner) = place::parse_unfinished(shown, place::NEW).unwrap();
    assert_eq!((recording, owner), (name.as_str(), Some(spool::liveness::own())));
    spool::leftovers::recordings(unfinished.parent().unwrap(), None);
    assert!(unfinished.exists(), "its process lives");
    mirror.remove();
    assert!(!unfinished.exists());
}

#[test]
fn what_a_command_asks_for_stays_in_the_file_and_is_heeded_within_bounds() {
    use std::os::unix::fs::FileExt;
    let mut run = Run::new("hold");
    let now = 7_000_000_000;
    let standing = run.standing();
    run.update(&standing);
    assert_eq!(run.mirror.wanted_until(now), 0, "nobody asked");
    let theirs = std::fs::File::options().write(true).open(&run.mirror.path).unwrap();
    let mut heeded = |until: u64| {
        theirs.write_all_at(&until.to_le_bytes(), HOLD_AT as u64).unwrap();
        run.launch(100);
        let standing = run.standing();
        run.update(&standing);
        run.mirror.wanted_until(now)
    };
    assert_eq!(heeded(now + 1), now + 1);
    assert_eq!(heeded(now + LONGEST_HOLD), now + LONGEST_HOLD);
    for (odd, why) in
        [(now, "it is over"), (1, "long ago"), (now + LONGEST_HOLD + 1, "too far"), (u64::MAX, "noise")]
    {
        assert_eq!(heeded(odd), 0, "{why}");
    }
    run.mirror.remove();
}
