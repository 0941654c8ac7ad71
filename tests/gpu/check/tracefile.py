# SPDX-License-Identifier: Apache-2.0
"""Reads a trace of gapprobe (Chrome JSON, gzipped) the way its reader would: what is there, what Perfetto would drop,
and whether its clock can be true. Times are integer ns relative to the trace's own base."""

import bisect
import collections
import copy
import gzip
import json
import pathlib
import re

Kernel = collections.namedtuple("Kernel", "start end correlation track name")
Call = collections.namedtuple("Call", "start end correlation track name")
CALL_CATEGORIES = ("cuda_runtime", "cuda_driver")
SYNCHRONIZES = re.compile(r"Synchronize")
LAUNCHES = re.compile(r"Launch")


def events(text):
    """Every event of the array or object form, one dict after the other."""
    at = text.find('"traceEvents"')
    at = text.index("[", at + 1 if at >= 0 else 0) + 1
    decode = json.JSONDecoder().raw_decode
    blank = re.compile(r"[\s,]*")
    while True:
        at = blank.match(text, at).end()
        if at >= len(text) or text[at] == "]":
            return
        event, at = decode(text, at)
        yield event


def ns(micros):
    """Whole ns of a `ts` or `dur`."""
    return round(micros * 1000)


class Trace:
    """The parts of a trace that the checks need."""

    def __init__(self, path):
        text = gzip.decompress(pathlib.Path(path).read_bytes()).decode()
        base = re.search(r'"baseTimeNanoseconds"\s*:\s*(\d+)', text)
        self.base_ns = int(base.group(1)) if base else None
        self.kernels, self.calls, self.categories = [], [], collections.Counter()
        self.idle = []
        self.tracks = collections.defaultdict(list)
        self.track_names = {}
        for e in events(text):
            kind = e.get("ph")
            if kind == "M" and e.get("name") == "thread_name":
                self.track_names[(e.get("pid"), e.get("tid"))] = str((e.get("args") or {}).get("name"))
            if kind != "X":
                continue
            start, length, category = ns(e["ts"]), ns(e.get("dur", 0)), e.get("cat")
            track = (e.get("pid"), e.get("tid"))
            self.categories[category] += 1
            self.tracks[track].append((start, start + length))
            correlation = (e.get("args") or {}).get("correlation")
            if category == "kernel":
                self.kernels.append(Kernel(start, start + length, correlation, track, e.get("name")))
            elif category in CALL_CATEGORIES:
                self.calls.append(Call(start, start + length, correlation, track, e.get("name")))
            elif "idle" in str(category) or "idle" in self.track_names.get(track, ""):
                self.idle.append((start, start + length, e.get("name")))
        self.kernels.sort()
        self.calls.sort()
        self.launch_of = {c.correlation: c for c in self.calls if c.correlation is not None and LAUNCHES.search(c.name or "")}

    def dropped_by_perfetto(self):
        """Slices that begin inside another of their track and end after it: Perfetto drops them without a word."""
        lost = 0
        for slices in self.tracks.values():
            open_ends = []
            for start, end in sorted(slices, key=lambda s: (s[0], -s[1])):
                while open_ends and open_ends[-1] <= start:
                    open_ends.pop()
                if open_ends and end > open_ends[-1]:
                    lost += 1
                else:
                    open_ends.append(end)
        return lost

    def starts_before_launch(self):
        """(kernels with a launch call, of these: started before that call began)."""
        known = [(k, self.launch_of[k.correlation]) for k in self.kernels if k.correlation in self.launch_of]
        return len(known), sum(k.start < c.start for k, c in known)

    def launch_to_start_on_empty_queue(self):
        """ns from launch call to kernel start, of launches that came when every earlier kernel had ended."""
        known = sorted(((self.launch_of[k.correlation], k) for k in self.kernels if k.correlation in self.launch_of))
        found, busy_until = [], 0
        for call, kernel in known:
            if busy_until <= call.start:
                found.append(kernel.start - call.start)
            busy_until = max(busy_until, kernel.end)
        return found

    def synchronize_distances(self):
        """ns from the end of the last kernel launched before a synchronize to that call's return.

        Only synchronizes that had to wait for that kernel, or found it just ended, say something about the clock: the
        kernel's launch must have returned less than 200 us before the call.
        """
        by_launch = sorted(((self.launch_of[k.correlation].end, k.end) for k in self.kernels if k.correlation in self.launch_of))
        launched = [x[0] for x in by_launch]
        latest_end, so_far = [], 0
        for _, end in by_launch:
            so_far = max(so_far, end)
            latest_end.append(so_far)
        found = []
        for call in self.calls:
            if not SYNCHRONIZES.search(call.name or ""):
                continue
            at = bisect.bisect_right(launched, call.start) - 1
            if at >= 0 and call.start - launched[at] < 200_000:
                found.append(call.end - latest_end[at])
        return found

    def part(self, keep):
        """A copy with only the kernels and calls whose start `keep` accepts; for checks before and after a pause."""
        chosen = copy.copy(self)
        chosen.kernels = [k for k in self.kernels if keep(k.start)]
        chosen.calls = [c for c in self.calls if keep(c.start)]
        return chosen
