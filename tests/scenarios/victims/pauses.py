# SPDX-License-Identifier: Apache-2.0
"""A training loop that stands still now and then: pauses.py LIBRARY SECONDS EVERY LASTS. Every EVERY seconds it saves for LASTS
seconds; nothing of CUDA is called meanwhile. The line that a test looks for ends in a mark."""

import ctypes
import sys
import time

library = ctypes.CDLL(sys.argv[1])
SECONDS, EVERY, LASTS = map(float, sys.argv[2:5])


def save(until):
    n = 0
    while time.monotonic() < until:
        for i in range(2000):
            n += i * i  # PAUSE
    return n


library.prepare()
begin = time.monotonic()
due = begin + EVERY
while time.monotonic() < begin + SECONDS:
    library.step()
    time.sleep(0.0005)
    if time.monotonic() >= due:
        save(time.monotonic() + LASTS)
        due += EVERY
