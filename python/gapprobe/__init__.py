# SPDX-License-Identifier: Apache-2.0
"""What a training script may tell gapprobe, and where gapprobe's files are.

    import gapprobe

    for batch in loader:
        gapprobe.step()                      # the same place of every step
        with gapprobe.range("forward"):
            loss = model(batch)

Marks do nothing, and cost next to nothing, in a process without libgapprobe.so. Nothing here measures or decides: that is
the library's work. Traces are read with

    run = gapprobe.load("gapprobe-....json.gz")
    run.verdict, run.steps, run.kernels.to_pandas()
"""

from gapprobe._find import NotFound, command, library
from gapprobe._marks import capture, preloaded, range, range_pop, range_push, step, version

_READERS = ("Events", "Failed", "Run", "Table", "Verdict", "load", "verdict")
__all__ = [
    "NotFound", "capture", "command", "library", "preloaded", "range", "range_pop", "range_push", "step", "version", *_READERS,
]
__version__ = "0.1.0"


def __getattr__(name):
    # (a training script that only marks its steps need not pay for what reads traces)
    if name in _READERS:
        from gapprobe import _read

        return getattr(_read, name)
    raise AttributeError("module 'gapprobe' has no attribute %r" % name)
