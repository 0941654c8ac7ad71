// SPDX-License-Identifier: Apache-2.0
//! What the store keeps when its memory is used up, read back through `trace::reader`.

use super::image::Image;
use super::Store;
use trace::define::{KernelInfo, TrackInfo};
use trace::event::{Event, Kind};
use trace::reader::{Recording, Track};
use trace::Header;

const BUSY: TrackInfo = TrackInfo::Stream { device: 0, context: 1, stream: 7 };
const QUIET: TrackInfo = TrackInfo::Stream { device: 0, context: 1, stream: 8 };

fn read(store: &Store) -> (Recording, Vec<(Track, Event)>) {
    let header = Header { segments: store.image.segments(), ..Header::default() };
    store.image.put_header(&header.encode());
    let mut recording = Recording::open(&store.image).unwrap();
    let mut events = Vec::new();
    recording.for_each_event(&store.image, |t, e| events.push((t, *e)));
    assert_eq!(recording.problems, Default::default());
    (recording, events)
}

#[test]
fn a_busy_stream_that_laps_ten_times_does_not_push_out_newer_events_of_a_quiet_one() {
    let mut store = Store::new(Image::map(64 * 32 * 1024).unwrap());
    let laps = 10 * 64 * trace::segment::SEGMENT_EVENTS as u64;
    for i in 0..laps {
        store.add(BUSY, &Event::new(Kind::Kernel, i * 10, i * 10 + 8));
        if i % 1000 == 0 {
            store.add(QUIET, &Event::new(Kind::Memcpy, i * 10 + 8, i * 10 + 9));
        }
    }
    let (_, events) = read(&store);
    let valid = store.valid_from();
    assert!(valid > 0);
    let kept = |kind| events.iter().filter(|(_, e)| e.kind == kind && e.start >= valid).count() as u64;
    let first = valid.div_ceil(10);
    assert_eq!(kept(Kind::Kernel), laps - first, "every busy event after valid_from is there");
    let quiet = (0..laps).filter(|i| i % 1000 == 0 && i * 10 + 8 >= valid).count() as u64;
    assert_eq!(kept(Kind::Memcpy), quiet, "every quiet event after valid_from is there");
    assert!(
        kept(Kind::Kernel) > 50 * trace::segment::SEGMENT_EVENTS as u64,
        "most of the memory holds events"
    );
}

#[test]
fn streams_beyond_the_pool_share_the_overflow_track_and_keep_their_identity() {
    let mut store = Store::new(Image::map(700 * 32 * 1024).unwrap());
    let streams = super::MAX_TRACKS as u32 + 20;
    for stream in 0..streams {
        for i in 0..3 {
            store.add(
                TrackInfo::Stream { device: 0, context: 1, stream },
                &Event::new(Kind::Memset, i, i + 1),
            );
        }
    }
    let (_, events) = read(&store);
    for stream in 0..streams {
        let t = Track::Of(TrackInfo::Stream { device: 0, context: 1, stream });
        assert_eq!(events.iter().filter(|(track, _)| *track == t).count(), 3, "stream {stream}");
    }
}

#[test]
fn definitions_written_one_by_one_are_all_read_back() {
    let mut store = Store::new(Image::map(64 * 32 * 1024).unwrap());
    let mut kernels = Vec::new();
    for i in 0..1500u32 {
        let name = store.string(format!("kernel_{i}{}", "x".repeat((i % 23) as usize)).as_bytes());
        kernels.push((store.kernel(KernelInfo { name, block: [i, 1, 1], ..KernelInfo::default() }), i));
    }
    store.attribute("cupti.path", "/somewhere");
    let (recording, _) = read(&store);
    for (id, i) in kernels {
        assert_eq!(
            recording.definitions.kernel_name(id),
            format!("kernel_{i}{}", "x".repeat((i % 23) as usize))
        );
    }
    assert_eq!(recording.definitions.attributes().collect::<Vec<_>>(), [("cupti.path", "/somewhere")]);
}
