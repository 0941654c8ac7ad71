# SPDX-License-Identifier: Apache-2.0
"""Says what is to be recorded, where gapprobe is there."""

import ctypes


def capture(on):
    """What follows is recorded, or not."""
    call = getattr(ctypes.CDLL(None), "gapprobe_capture", None)
    if call is not None:
        call(int(on))
