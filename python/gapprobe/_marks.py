# SPDX-License-Identifier: Apache-2.0
"""The C ABI of include/gapprobe.h, from Python. Without the library in the process, each function does nothing."""

import ctypes
import functools


def _look_up():
    """The library's functions, if LD_PRELOAD or the driver put it into this process; else None."""
    try:
        # PyDLL: the calls take nanoseconds, letting the GIL go would take longer. None: what is
        # loaded, nothing new.
        process = ctypes.PyDLL(None)
        process.gapprobe_step.argtypes = []
        process.gapprobe_step.restype = None
        process.gapprobe_range_push.argtypes = [ctypes.c_char_p]
        process.gapprobe_range_push.restype = None
        process.gapprobe_range_pop.argtypes = []
        process.gapprobe_range_pop.restype = None
        process.gapprobe_capture.argtypes = [ctypes.c_int]
        process.gapprobe_capture.restype = None
        process.gapprobe_version.argtypes = []
        process.gapprobe_version.restype = ctypes.c_int
        return process
    except (AttributeError, OSError):
        return None


_LIBRARY = _look_up()


def preloaded():
    """True in a process that has libgapprobe.so."""
    return _LIBRARY is not None


def version():
    """The preloaded library's version as a tuple of three, or None where there is none."""
    if _LIBRARY is None:
        return None
    number = _LIBRARY.gapprobe_version()
    return number // 10000, number // 100 % 100, number % 100


def step():
    """A training step begins here, and the one before ends. Call it at the same place of every step."""
    if _LIBRARY is not None:
        _LIBRARY.gapprobe_step()


def range_push(name):
    """Begins a range of the calling thread; 96 bytes of the name (as UTF-8) are kept. Ranges nest, 64 deep."""
    if _LIBRARY is not None:
        _LIBRARY.gapprobe_range_push(str(name).encode("utf-8", "replace").replace(b"\0", b" "))


def range_pop():
    """Ends the innermost range of the calling thread."""
    if _LIBRARY is not None:
        _LIBRARY.gapprobe_range_pop()


def capture(on):
    """Recording off (False) or on (True) from here; the span between is reported as not observed."""
    if _LIBRARY is not None:
        _LIBRARY.gapprobe_capture(1 if on else 0)


class range:  # noqa: A001, N801: gapprobe.range("forward") is what a script should say
    """A named range: `with gapprobe.range("forward"):`, or `@gapprobe.range("forward")` on a function."""

    def __init__(self, name):
        self.name = name

    def __enter__(self):
        range_push(self.name)
        return self

    def __exit__(self, *_):
        range_pop()
        return False

    def __call__(self, function):
        @functools.wraps(function)
        def inside(*arguments, **named):
            with range(self.name):
                return function(*arguments, **named)

        return inside
