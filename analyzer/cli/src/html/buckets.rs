// SPDX-License-Identifier: Apache-2.0
//! The buckets as the page names, orders and rounds them. Colours: `page/page.css`, by key.

use serde_json::{json, Value};

use verdict::analysis::{Bucket, Buckets};

/// Order of the page (what the device does, then why it does nothing), name, meaning.
const SHOWN: [(Bucket, &str, &str); Bucket::COUNT] = [
    (Bucket::Compute, "Compute", "a kernel that computes runs"),
    (Bucket::Copy, "Copy only", "only copies run"),
    (Bucket::Comm, "Collective only", "only collectives run, with or without copies"),
    (Bucket::Sync, "Sync", "idle: a blocking call had drained the queue"),
    (Bucket::Launch, "Launch", "idle: the host was on its way from launch to launch"),
    (Bucket::Host, "Host", "idle: the host was busy with something else"),
    (Bucket::Input, "Input", "idle: the launching thread was fetching data"),
    (Bucket::CopyWait, "Copy wait", "idle: a blocking pageable copy held the host"),
    (Bucket::Alloc, "Allocation", "idle: an allocating or freeing call held the host"),
    (Bucket::KernelGap, "Kernel gap", "idle: the device's own spacing between queued work"),
    (
        Bucket::DeviceWait,
        "Device wait",
        "idle: queued work waited for an event, a stream, a copy or a collective",
    ),
    (Bucket::Unexplained, "Unexplained", "idle, of no known cause"),
];

/// Tenths of a percent in a whole.
const WHOLE: u64 = 1000;

/// Key, name, meaning of each; lists of parts (steps, histograms) have this order.
pub(super) fn legend() -> Value {
    SHOWN
        .iter()
        .map(|(b, name, what)| json!({"key": b.key(), "name": name, "what": what, "gap": b.is_gap()}))
        .collect()
}

/// Place of a bucket in the page's order.
pub(super) fn place(bucket: Bucket) -> usize {
    SHOWN.iter().position(|s| s.0 == bucket).unwrap_or(0)
}

/// ns in the page's order.
pub(super) fn parts(buckets: &Buckets) -> Vec<u64> {
    SHOWN.iter().map(|s| buckets.get(s.0)).collect()
}

/// ns, and tenths of a percent that sum to 100 %.
pub(super) fn figures(buckets: &Buckets) -> Value {
    let parts = parts(buckets);
    json!({"ns": parts, "tenths": tenths(&parts)})
}

/// Shares in tenths of a percent, rounded so that they sum to 100 %: the largest remainders are
/// rounded up.
fn tenths(parts: &[u64]) -> Vec<u64> {
    let whole: u128 = parts.iter().map(|&p| u128::from(p)).sum();
    if whole == 0 {
        return vec![0; parts.len()];
    }
    let scaled = |p: u64| u128::from(p) * u128::from(WHOLE);
    let mut shares: Vec<u64> = parts.iter().map(|&p| (scaled(p) / whole) as u64).collect();
    let missing = WHOLE - shares.iter().sum::<u64>();
    let mut order: Vec<(u128, usize)> = parts.iter().map(|&p| scaled(p) % whole).zip(0..).collect();
    order.sort_by_key(|&(remainder, i)| (std::cmp::Reverse(remainder), i));
    for (_, i) in order.into_iter().take(missing as usize) {
        if let Some(s) = shares.get_mut(i) {
            *s += 1;
        }
    }
    shares
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_bucket_is_shown_once_and_shares_sum_to_the_whole() {
        for bucket in Bucket::ALL {
            assert_eq!(SHOWN.iter().filter(|s| s.0 == bucket).count(), 1, "{bucket:?}");
        }
        for parts in [&[1, 1, 1][..], &[u64::MAX >> 4, 1, 0], &[7], &[0, 3, 3, 1]] {
            assert_eq!(tenths(parts).iter().sum::<u64>(), 1000, "{parts:?}");
        }
        assert_eq!(tenths(&[1, 1, 1]), [334, 333, 333]);
        assert_eq!(tenths(&[0, 0]), [0, 0]);
    }
}
