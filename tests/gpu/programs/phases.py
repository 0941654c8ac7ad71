# SPDX-License-Identifier: Apache-2.0
"""Generates and trains in turns, as reinforcement learning does: in each step first a range `rollout`, which waits for memory, then `forward`,
which multiplies, 2.5 s each: phases.py STEPS. Truth: what each did a second of its own, by the clock, and the peaks that it is held against."""

import json
import sys
import time

import torch
from sm_clock import SmClock
from used import peaks, work

PHASE_S = 2.5
KINDS = {"rollout": "memory", "forward": "bf16"}


def main():
    steps = int(sys.argv[1])
    properties = torch.cuda.get_device_properties(0)
    clock = SmClock(properties.multi_processor_count)
    works = {name: work(kind) for name, kind in KINDS.items()}
    amount, took, mhz = dict.fromkeys(KINDS, 0), dict.fromkeys(KINDS, 0.0), []
    for _ in range(steps):
        torch.cuda.nvtx.range_push("step")
        for name, (once, each) in works.items():
            torch.cuda.synchronize()
            if name == "forward":
                clock.begin()
            torch.cuda.nvtx.range_push(name)
            begin = time.perf_counter()
            while time.perf_counter() - begin < PHASE_S:
                for _ in range(4):
                    once()
                torch.cuda.synchronize()
                amount[name] += 4 * each
            took[name] += time.perf_counter() - begin
            torch.cuda.nvtx.range_pop()
            if name == "forward":
                clock.end()
                mhz.append(clock.mhz)
        torch.cuda.nvtx.range_pop()
    known = [m for m in mhz if m]
    print(json.dumps({
        "program": "phases", "seconds": sum(took.values()), "a_second": {name: amount[name] / took[name] for name in KINDS},
        **peaks(properties), "sm_mhz": sum(known) / len(known) if known else None, "sm_mhz_missing": clock.missing,
    }), flush=True)


if __name__ == "__main__":
    main()
