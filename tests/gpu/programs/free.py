# SPDX-License-Identifier: Apache-2.0
"""A loop of loops.py that runs freely for so many seconds and keeps its own clock: when the first step began (CLOCK_MONOTONIC, ns), and each step from
then on, µs, as JSON in --out. Nothing stands between its steps, and nobody waits for its GPU but the loop itself.

With --gate it imports what it needs, says so by a file `ready`, and waits for a line on stdin before it touches its GPU."""

import argparse
import json
import pathlib
import sys
import time

import loops


class Clock:
    """Stands between the steps: the next one is there until the seconds are over."""

    def __init__(self, seconds):
        self.seconds, self.began, self.at = seconds, None, []

    def before(self):
        now = time.perf_counter()
        self.began = self.began or now
        self.at.append(now)
        return now < self.began + self.seconds


def main():
    p = argparse.ArgumentParser(prog="free")
    p.add_argument("--program", required=True, choices=loops.PROGRAMS)
    p.add_argument("--seconds", type=float, required=True)
    p.add_argument("--out", required=True)
    p.add_argument("--gate", action="store_true", help="wait for a line on stdin before the first use of the GPU")
    a = p.parse_args()
    loops.import_for(a.program)
    if a.gate:
        pathlib.Path("ready").touch()
        sys.stdin.readline()
    clock = Clock(a.seconds)
    loops.play(a.program, loops.context(a.program), clock)
    with open(a.out, "w") as out:
        json.dump({"began_ns": round(clock.began * 1e9), "at_us": [round((t - clock.began) * 1e6) for t in clock.at]}, out)


if __name__ == "__main__":
    main()
