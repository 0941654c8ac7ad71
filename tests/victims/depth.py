# SPDX-License-Identifier: Apache-2.0
"""CUDA calls made by a loop of C below so many Python frames: what a call site costs on the program's thread.

    python3 depth.py LIBRARY cost DEPTH | faults DEPTH | allocations DEPTH | syscalls DEPTH

LIBRARY is tests/scenarios/victims/libfrom_python.c, built. cost prints "walk NS": what a call takes more here than on a
thread Python does not know, median of pairs.
"""

import ctypes
import sys
import time

library = ctypes.CDLL(sys.argv[1])
for name in ("from_here", "on_a_native_thread"):
    getattr(library, name).restype = ctypes.c_double
for name in ("from_here", "on_a_native_thread", "marked", "faults_of", "allocations_of"):
    getattr(library, name).argtypes = [ctypes.c_long]
for name in ("faults_of", "allocations_of"):
    getattr(library, name).restype = ctypes.c_long


def below(depth, work):
    return below(depth - 1, work) if depth > 1 else work()


def cost():
    added = []
    for _ in range(30):
        time.sleep(0.12)
        here = library.from_here(3000)
        added.append(here - library.on_a_native_thread(3000))
    added.sort()
    return "walk %.1f (quarter %.1f)" % (added[len(added) // 2], added[len(added) // 4])


def faults():
    found = []
    for _ in range(5):
        time.sleep(0.12)
        found.append(library.faults_of(3000))
    return "faults " + " ".join(map(str, found))


def allocations():
    return "allocations %d" % library.allocations_of(2000)


def syscalls():
    time.sleep(0.12)
    library.marked(3000)
    return "marked"


# the first sight of the stack is no part of it: its frames are one more item in the ring
library.from_here(50)
below(int(sys.argv[3]) - 1, lambda: library.from_here(50))
time.sleep(0.3)
print(below(int(sys.argv[3]) - 1, globals()[sys.argv[2]]))
