#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Turns a torch.profiler (Kineto) trace into a gapprobe recording, for tests.

    from_kineto.py TRACE.json[.gz] OUT.gprec.gz

Kernels, copies, memsets, and the runtime and driver calls of trace/src/call.rs; no ranges, no step marks (the tests
must find the steps). Times are taken as decimal text, so they are exact to the ns. Layout: trace/src/lib.rs.
"""
import decimal
import gzip
import json
import pathlib
import re
import struct
import sys

HEADER, SEGMENT, PAYLOAD, EVENTS = 4096, 32768, 32704, 1022
DEFINITIONS, RECORDER = 0xFFFFFFFF, 0xFFFFFFFD
CLASSES = ["", "Launch", "GraphLaunch", "Copy", "Memset", "Sync", "Alloc", "Free", "StreamWait", "EventRecord"]


def calls():
    """(domain, id) -> class number, read from the table the recorder uses."""
    source = pathlib.Path(__file__).parents[3] / "trace/src/call.rs"
    rows = re.findall(r'^\s+(RUNTIME|DRIVER) (\d+) "[^"]+" (\w+);', source.read_text(), re.M)
    return {(2 if d == "RUNTIME" else 1, int(i)): CLASSES.index(c) for d, i, c in rows if c in CLASSES}


class Recording:
    def __init__(self):
        self.definitions, self.strings, self.kernels, self.tracks = b"", {}, {}, {}
        self.next = 1

    def define(self, ident, tag, payload):
        payload += b"\0" * (-len(payload) % 4)
        record = struct.pack("<HBBI", len(payload) + 8, tag, 0, ident) + payload
        room = PAYLOAD - len(self.definitions) % PAYLOAD
        if len(record) > room:
            self.definitions += b"\0" * room
        self.definitions += record

    def fresh(self):
        self.next += 1
        return self.next - 1

    def string(self, text):
        if text not in self.strings:
            self.strings[text] = self.fresh()
            raw = text.encode()[:4000]
            self.define(self.strings[text], 1, struct.pack("<I", len(raw)) + raw)
        return self.strings[text]

    def kernel(self, name, block, registers, shared):
        key = (name, tuple(block), registers, shared)
        if key not in self.kernels:
            named = self.string(name)
            self.kernels[key] = self.fresh()
            self.define(self.kernels[key], 2, struct.pack("<7I", named, *block, registers, shared, 0))
        return self.kernels[key]

    def event(self, track, start, end, correlation, a, b, c, kind, flags=0, x=0):
        if track not in self.tracks:
            ident = self.fresh()
            self.define(ident, 3, struct.pack("<5I", *track))
            self.tracks[track] = (ident, [])
        dur = max(0, end - start)
        words = struct.pack("<QIIIIBBBBI", start, dur & 0xFFFFFFFF, correlation, a, b, kind, flags, x, dur >> 32, c)
        self.tracks[track][1].append((start, end, words))

    def segments(self):
        number = 0
        def one(track, used, payload, first=0, last=0):
            nonlocal number
            number += 1
            head = struct.pack("<4s3IQQQ24x", b"GPSG", 2, track, used, number, first, last)
            return (head + payload).ljust(SEGMENT, b"\0")
        for at in range(0, len(self.definitions), PAYLOAD):
            chunk = self.definitions[at:at + PAYLOAD]
            used = 0
            while used + 8 <= len(chunk) and (n := struct.unpack_from("<H", chunk, used)[0]):
                used += n
            yield one(DEFINITIONS, used, chunk[:used])
        for ident, events in self.tracks.values():
            for at in range(0, len(events), EVENTS):
                chunk = events[at:at + EVENTS]
                yield one(ident, len(chunk), b"".join(e[2] for e in chunk),
                          min(e[0] for e in chunk), max(e[1] for e in chunk))

    def finish(self, attributes):
        for key, value in attributes:
            self.define(0, 5, struct.pack("<II", self.string(key), self.string(value)))
        body = b"".join(self.segments())
        every = [e for _, events in self.tracks.values() for e in events]
        first, last = min(e[0] for e in every), max(e[1] for e in every)
        head = bytearray(HEADER)
        struct.pack_into("<8sHHI", head, 0, b"GAPPROBE", 1, 0, HEADER)
        struct.pack_into("<IIII", head, 16, 2, 3, SEGMENT, len(body) // SEGMENT)
        struct.pack_into("<8Q", head, 56, first, 1_700_000_000_000_000_000, last, 0, last, last, 0, 0)
        struct.pack_into("<I", head, 128, 0)
        struct.pack_into("<Q", head, 144, first)
        return bytes(head) + body


def ns(value):
    return int((decimal.Decimal(value) * 1000).to_integral_value())


def convert(path, out):
    opener = gzip.open if path.endswith(".gz") else open
    with opener(path, "rt") as f:
        trace = json.load(f, parse_float=decimal.Decimal)
    classes, r = calls(), Recording()
    events = [e for e in trace["traceEvents"] if e.get("ph") == "X"]
    device = ("kernel", "gpu_memcpy", "gpu_memset")
    shift = min(ns(e["ts"]) for e in events if e.get("cat") in (*device, "cuda_runtime")) - 1_000_000_000
    graphs = {}
    for e in events:
        if e.get("cat") == "cuda_runtime" and e["name"] == "cudaGraphLaunch":
            graphs[e["args"]["correlation"]] = 1
    for d in trace.get("deviceProperties", []):
        name = r.string(d["name"])
        r.define(d["id"], 4, struct.pack("<4IQ", d["numSms"], d["computeMajor"], d["computeMinor"], name, d["totalGlobalMem"]))
    for e in events:
        cat, args = e.get("cat"), e.get("args", {})
        start = ns(e["ts"]) - shift
        end = start + ns(e.get("dur", 0))
        if cat in device:
            graph = graphs.get(args["correlation"], 0)
            track = (0, args["device"], args["context"], args["stream"], 0)
            if cat == "kernel":
                a = r.kernel(e["name"], args["block"], args["registers per thread"], args["shared memory"])
                b, kind = min(args["grid"][0] * args["grid"][1] * args["grid"][2], 0xFFFFFFFF), 1
            elif cat == "gpu_memcpy":
                size, kind = args["bytes"], 2
                m = re.match(r"Memcpy (\w+) \((\w+) -> (\w+)\)", e["name"])
                direction = {"HtoD": 1, "DtoH": 2, "DtoD": 8, "HtoH": 9, "PtoP": 10}.get(m[1], 0)
                where = {"Pageable": 1, "Pinned": 2, "Device": 3}
                a = size & 0xFFFFFFFF
                b = size >> 32 | direction << 16 | where.get(m[2], 0) << 20 | where.get(m[3], 0) << 24
            else:
                a, b, kind = args["bytes"] & 0xFFFFFFFF, args["bytes"] >> 32, 3
            r.event(track, start, end, args["correlation"], a, b, graph, kind, 1 if graph else 0)
        elif cat in ("cuda_runtime", "cuda_driver"):
            domain = 2 if cat == "cuda_runtime" else 1
            x = classes.get((domain, args.get("cbid")))
            if x:
                r.event((1, 0, 0, e["tid"], 0), start, end, args["correlation"],
                        domain << 24 | args["cbid"], 0, 0, 16, 0, x)
    data = r.finish([("source", pathlib.Path(path).name)])
    with open(out, "wb") as f, gzip.GzipFile("", "wb", 9, f, mtime=0) as z:
        z.write(data)


if __name__ == "__main__":
    convert(sys.argv[1], sys.argv[2])
