# SPDX-License-Identifier: Apache-2.0
"""Programs for the gap sampler: sampled.py FOLDER MODE [SECONDS], FOLDER that of train.py. Lines that a test looks for
end in a mark of their own."""

import ctypes
import gc
import os
import random
import subprocess
import sys
import threading
import time

sys.path.insert(0, sys.argv[1])
import train

MODE, SECONDS = sys.argv[2], float((sys.argv[3:] or ["1.5"])[0])
device = train.Device()
kernel = device.kernel("step", 20)


def step():
    device.launch(kernel)
    device.synchronize()


def wait_for_data():
    time.sleep(0.15)  # SLEEP


def crunch(until):
    n = 0
    while time.monotonic() < until:
        for i in range(2000):
            n += i * i  # CRUNCH
    return n


def hold_the_lock(until):
    n = 0
    while time.monotonic() < until:
        for i in range(2000):
            n += i * i  # HOLD
    return n


def collect():
    gc.collect()  # COLLECT


def long_run(seconds, work):
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        step()
        work()


def sleep():
    long_run(SECONDS, wait_for_data)


def wait_for_ever():
    time.sleep(300)  # HANG


def hang():
    mark = ctypes.PyDLL(None).gapprobe_step
    for _ in range(400):
        mark()
        step()
        time.sleep(0.005)
    wait_for_ever()


def compute():
    spent = [0, 0]

    def work():
        wall, cpu = time.monotonic_ns(), time.thread_time_ns()
        crunch(time.monotonic() + 0.2)
        spent[0] += time.monotonic_ns() - wall
        spent[1] += time.thread_time_ns() - cpu

    long_run(SECONDS, work)
    print("share", spent[1] / spent[0])


def lock():
    end = time.monotonic() + SECONDS
    other = threading.Thread(target=hold_the_lock, args=(end,))
    other.start()
    step()
    crunch(end)
    step()
    other.join()


def lock_steps():
    """A training loop that gives the lock away for a moment before each launch, to a thread that keeps it."""
    kernels = [device.kernel(name, 300) for name in ("forward", "backward", "optimizer")]
    end = time.monotonic() + SECONDS
    other = threading.Thread(target=hold_the_lock, args=(end,))
    other.start()
    while time.monotonic() < end:
        for one in kernels:
            time.sleep(0.0002)
            device.launch(one)
    other.join()


def sleep_beside():
    """As `sleep`, beside a thread that sleeps too."""
    other = threading.Thread(target=time.sleep, args=(SECONDS,))
    other.start()
    sleep()
    other.join()


def collecting():
    keep = [[n] for n in range(400000)]
    long_run(SECONDS, collect)
    del keep


def children():
    busy = subprocess.Popen([sys.executable, "-c", "while True: pass"])
    reader = subprocess.Popen(["sh", "-c", "while :; do dd if=big of=/dev/null bs=1M 2>/dev/null; sleep 0.05; done"])
    print("busy", busy.pid, "reader", reader.pid, flush=True)
    long_run(SECONDS, wait_for_data)
    for child in (busy, reader):
        child.kill()
        child.wait()


def deaf():
    """A program that closes descriptors it does not know, and has files of its own under their numbers."""
    step()
    wait_for_data()
    taken = []
    for number in map(int, os.listdir("/proc/self/fd")):
        try:
            if "/task/" in os.readlink("/proc/self/fd/%d" % number):
                file = os.open("/dev/zero", os.O_RDONLY)
                os.dup2(file, number)
                os.close(file)
                taken.append(number)
        except OSError:
            pass
    print("taken", len(taken))
    helper = threading.Thread(target=short_thread)
    helper.start()
    helper.join()
    long_run(SECONDS, wait_for_data)
    assert all(os.read(number, 2) == bytes(2) for number in taken)


def forked():
    step()
    wait_for_data()
    child = os.fork()
    if child == 0:
        crunch(time.monotonic() + 1)
        os._exit(0)
    wait_for_data()
    os.waitpid(child, 0)
    long_run(0.4, wait_for_data)


def made_in(whose, number):
    """As `made_up`: a function of this process's own, gone when it returns."""
    name, scope = "%s_%05d" % (whose, number % 100000), {}
    exec(compile("def %s(n):\n    t = 0\n    for i in range(n * 20):\n        t += i\n" % name, "<made>", "exec"), scope)
    (call_odd if number % 2 else call_even)(scope[name])


def old_code(until):
    crunch(until)


def new_code(until):
    number = 0
    while time.monotonic() < until:
        number += 1
        made_in("childs", number)


def copies():
    """Two children that were forked and one that was started anew compute. The parent makes functions meanwhile, at the addresses at
    which one of the children makes its own."""
    end = time.monotonic() + SECONDS
    pids = []
    for work in (old_code, new_code):
        pids.append(os.fork())
        if pids[-1] == 0:
            work(end)
            os._exit(0)
    started = subprocess.Popen([sys.executable, "-c", "while True: pass"])
    print("old", pids[0], "new", pids[1], "started", started.pid, flush=True)
    number = 0
    while time.monotonic() < end:
        step()
        number += 1
        made_in("parents", number)
    started.kill()
    started.wait()
    for pid in pids:
        os.waitpid(pid, 0)


def call_f(f):
    f()


def call_g(f):
    f()


def leaf_f():
    return 1


def leaf_g():
    return 2


def alternating():
    """leaf_f is called by call_f only, leaf_g by call_g only."""
    step()
    end = time.monotonic() + SECONDS
    while time.monotonic() < end:
        for _ in range(500):
            call_f(leaf_f)
            call_g(leaf_g)
    step()


def clean(word):
    return word.strip()


def known(word):
    return clean(word) in ("a", "b")


def tokenize(text):
    return [known(word) for word in text]


def collate(text, until):
    while time.monotonic() < until:
        tokenize(text)  # COLLATE


def below_a_loader():
    """What a data loader in the training's own thread does: small calls without end, a few frames below one that stays."""
    text = ["a ", "b ", "c "] * 2000

    def work():
        collate(text, time.monotonic() + 0.2)

    long_run(SECONDS, work)


def down(depth):
    if depth:
        return down(depth - 1) + 1
    return spin_a_little()


def spin_a_little():
    return sum(i for i in range(300))


def call_even(function):
    function(300)


def call_odd(function):
    function(300)


def made_up(number):
    """A function that lives for one call only, its code where the last one's was: nothing but its name tells them apart."""
    name = "made_%05d" % number
    scope = {}
    exec(compile("def %s(n):\n    t = 0\n    for i in range(n):\n        t += i\n    return t\n" % name, "<made>", "exec"), scope)
    (call_odd if number % 2 else call_even)(scope[name])


def generator(n):
    for i in range(n):
        yield spin_a_little()


def short_thread():
    step()
    down(random.randrange(60))
    step()


def stress():
    end = time.monotonic() + SECONDS

    def workload():
        number = random.randrange(1000) * 1000
        while time.monotonic() < end:
            step()
            for _ in range(20):
                number += 1
                made_up(number % 100000)
            down(random.randrange(150))
            sum(generator(10))

    def starter():
        while time.monotonic() < end:
            thread = threading.Thread(target=short_thread)
            thread.start()
            thread.join()

    threads = [threading.Thread(target=f) for f in (workload, workload, starter)]
    for thread in threads:
        thread.start()
    workload()
    for thread in threads:
        thread.join()


step()
print("pid", os.getpid(), flush=True)
{"gc": collecting}.get(MODE, globals().get(MODE))()
step()
print("done", flush=True)
