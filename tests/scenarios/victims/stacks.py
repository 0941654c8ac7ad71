# SPDX-License-Identifier: Apache-2.0
"""Every stack that can be, by the interpreter itself: stacks.py FOLDER SECONDS TRUTH, FOLDER that of train.py.

Quick calls in all their combinations: each function is called from several lines, by itself, by generators, by C, in loops
whose turns (20 ns to a µs) come round many times while a stack is read. In its first rounds every function writes down its
`sys._getframe()`; later rounds make the same calls without a word. TRUTH, JSON, written at the end: stacks as
[function, [[function, line] of its caller, ...]], innermost first."""

import ctypes
import functools
import gc
import json
import os
import sys
import threading
import time

sys.path.insert(0, sys.argv[1])
import train

SECONDS = float(sys.argv[2])
QUALIFIED = sys.version_info >= (3, 11)
device = train.Device()
kernel = device.kernel("step", 20)
noting, truth = True, set()
QUICK = 200  # turns of each loop: more than half of the time is spent in them


def name_of(code):
    return code.co_qualname if QUALIFIED else code.co_name


def note():
    frame = sys._getframe(1)
    own, callers = name_of(frame.f_code), []
    while frame.f_back is not None:
        frame = frame.f_back
        callers.append((name_of(frame.f_code), frame.f_lineno))
    truth.add((own, tuple(callers)))


def leaf_f():
    if noting: note()
    return 1


def leaf_g():
    if noting: note()
    return 2


def call_f():
    if noting: note()
    return leaf_f()


def call_g():
    if noting: note()
    return leaf_g()


def both():
    if noting: note()
    a = call_f()
    b = call_g()
    c = call_f()
    return a + b + c


def crosswise():
    if noting: note()
    a = call_g()
    b = both()
    return a + b


def tree(depth, path):
    if noting: note()
    if depth == 0:
        return both() if path & 1 else crosswise()
    if path & 1:
        return tree(depth - 1, path >> 1)
    return tree(depth - 1, path >> 1) + 1


def tower(depth):
    if noting: note()
    if depth:
        return tower(depth - 1)
    return spin(300)


def spin(n):
    if noting: note()
    total = 0
    for i in range(n):
        total += i
    return total


def numbers(n):
    if noting: note()
    for i in range(n):
        spin(5)
        yield call_f()
        yield call_g()


def delegating(n):
    if noting: note()
    yield from numbers(n)


def key(n):
    if noting: note()
    return leaf_g() + n


def add(a, b):
    if noting: note()
    return a + leaf_f() + b


def back():
    if noting: note()
    both()


from_c = ctypes.PYFUNCTYPE(None)(back)


class Dying:
    def __del__(self):
        if noting: note()
        spin(20)


def below_c():
    if noting: note()
    sorted(range(4), key=key)
    functools.reduce(add, range(4))
    from_c()
    Dying()


def down_f(depth):
    if noting: note()
    return down_f(depth - 1) if depth else leaf_f()


def down_g(depth):
    if noting: note()
    return down_g(depth - 1) if depth else leaf_g()


def quick(n):
    if noting: note()
    while n:
        leaf_f()
        leaf_g()
        n -= 1


def once(n):
    if noting: note()
    while n:
        leaf_f()
        n -= 1


def padded(n):
    if noting: note()
    while n:
        leaf_f()
        once = n
        twice = once
        once = twice
        n -= 1


def deep(n, depth):
    if noting: note()
    while n:
        down_f(depth)
        down_g(depth)
        n -= 1


def loops(n, depth):
    if noting: note()
    if depth:
        return loops(n, depth - 1)
    quick(n)
    once(n)
    padded(n)
    for k in (0, 1, 2, 4):
        deep(n, k)


def everything(turn):
    if noting: note()
    loops(2 if noting else QUICK, turn % 16)
    tree(5, turn & 63)
    sum(numbers(3))
    sum(delegating(3))
    below_c()
    for depth in (3, 20, 40):
        tower(depth)
    if turn % 16 == 0:
        tower(90)


def step():
    if noting: note()
    device.launch(kernel)
    device.synchronize()


def work(end):
    if noting: note()
    turn = 0
    while turn < 128 or time.monotonic() < end:
        if turn % 8 == 0:
            step()
        everything(turn)
        turn += 1
        if not noting and turn % 64 == 0:
            time.sleep(0.0002)


def thread():
    if noting: note()
    work(END)


def short():
    if noting: note()
    step()
    spin(3000)


def all_threads():
    if noting: note()
    others = [threading.Thread(target=thread), threading.Thread(target=thread)]
    for other in others:
        other.start()
    work(END)
    while True:
        brief = threading.Thread(target=short)
        brief.start()
        brief.join()
        if time.monotonic() > END:
            break
    for other in others:
        other.join()


def alone():
    if noting: note()
    work(END)


note()
gc.collect()
gc.disable()  # a collection begins anywhere
for noting, part in ((True, 0), (False, SECONDS / 2)):
    END = time.monotonic() + part
    all_threads()
    END = time.monotonic() + part
    alone()
if os.fork() == 0:
    os._exit(0)
os.wait()
with open(sys.argv[3], "w") as out:
    json.dump(list(truth), out)
END += 60
threading.Thread(target=thread, daemon=True).start()
print("done", flush=True)
