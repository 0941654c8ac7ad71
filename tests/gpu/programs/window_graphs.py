# SPDX-License-Identifier: Apache-2.0
"""A loop of small eager steps, and another thread that captures, instantiates and replays CUDA graphs all the while: for windows
that open and close beside it. Prints the steps, the graphs made, the replays, and whether every result was right."""

import argparse
import ctypes
import json
import sys
import threading
import time

import torch


def graphs(stop, counts):
    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        x = torch.zeros(1024, device="cuda")
        while not stop.is_set():
            graph = torch.cuda.CUDAGraph()
            x.zero_()
            side.synchronize()
            with torch.cuda.graph(graph, stream=side, capture_error_mode="thread_local"):
                for _ in range(20):
                    x += 1
            for _ in range(5):
                graph.replay()
            side.synchronize()
            counts["graphs"] += 1
            counts["replays"] += 5
            counts["wrong"] += int(x[0].item() != 100)


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--seconds", type=float, default=20)
    p.add_argument("--threads", action="store_true", help="the other thread too")
    p.add_argument("--gate", action="store_true", help="wait for a line on stdin before the first use of the GPU")
    a = p.parse_args()
    if a.gate:
        sys.stdin.readline()
    mark = getattr(ctypes.CDLL(None), "gapprobe_step", lambda: None)
    w = torch.randn(256, 256, device="cuda") / 16
    x = torch.randn(256, 256, device="cuda")
    torch.cuda.synchronize()
    stop, counts = threading.Event(), {"graphs": 0, "replays": 0, "wrong": 0}
    other = threading.Thread(target=graphs, args=(stop, counts)) if a.threads else None
    if other:
        other.start()
    began, steps = time.monotonic(), 0
    while time.monotonic() - began < a.seconds:
        mark()
        for _ in range(8):
            x = torch.tanh(x @ w)
        steps += 1
        if steps % 4 == 0:
            torch.cuda.current_stream().synchronize()
    stop.set()
    if other:
        other.join()
    torch.cuda.synchronize()
    print(json.dumps({"true_steps": steps, **counts}), flush=True)


if __name__ == "__main__":
    main()
