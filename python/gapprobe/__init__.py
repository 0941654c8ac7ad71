# SPDX-License-Identifier: Apache-2.0
"""What a training script may tell gapprobe, and where gapprobe's files are.

    import gapprobe

    for batch in loader:
        gapprobe.step()                      # the same place of every step
        with gapprobe.range("forward"):
            loss = model(batch)

Every call does nothing, and costs next to nothing, in a process without libgapprobe.so. Nothing here measures or decides:
that is the library's work.
"""

from gapprobe._find import NotFound, command, library
from gapprobe._marks import capture, preloaded, range, range_pop, range_push, step, version

__all__ = [
    "NotFound", "capture", "command", "library", "preloaded", "range", "range_pop", "range_push", "step", "version",
]
__version__ = "0.1.0"
