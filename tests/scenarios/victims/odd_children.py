# SPDX-License-Identifier: Apache-2.0
"""A child that is not what it was, or does not do its work where it stands, while the program uses the GPU:
odd_children.py FOLDER MODE SECONDS, FOLDER that of train.py. MODE:

  becomes   started without address randomization; becomes the same program with another script, by exec, at the same addresses
  threads   its main thread waits for a thread of its own that computes without the GIL
  new_code  runs ever new functions, each with a line table of nearly a megabyte"""

import ctypes
import os
import subprocess
import sys
import threading
import time
import types
import zlib

ADDR_NO_RANDOMIZE = 0x0040000

SCRIPT = """
import os, sys, time
def crunch_NUMBER(until):
    n = 0
    while time.monotonic() < until:
        for i in range(2000):
            n += i
print("at", id(crunch_NUMBER.__code__), time.monotonic_ns(), flush=True)
crunch_NUMBER(time.monotonic() + float(sys.argv[1]))
if sys.argv[2][0] != "-":
    os.execv(sys.executable, [sys.executable, "-S", "-c", sys.argv[2], sys.argv[1], "-" * len(sys.argv[2])])
"""


def rss_kb():
    with open("/proc/self/statm") as f:
        return int(f.read().split()[1]) * os.sysconf("SC_PAGE_SIZE") // 1024


def becomes(seconds):
    first, second = SCRIPT.replace("NUMBER", "1"), SCRIPT.replace("NUMBER", "2")
    words = [sys.executable, "-S", "-c", first, str(seconds / 2), second]
    personality = ctypes.CDLL(None).personality
    child = subprocess.Popen(words, preexec_fn=lambda: personality(ADDR_NO_RANDOMIZE))
    return child.pid, lambda: child.poll() is not None


def forked(work):
    pid = os.fork()
    if pid == 0:
        work()
        os._exit(0)
    return pid, lambda: os.waitpid(pid, os.WNOHANG)[0] == pid


def threads(seconds):
    def compress():
        end, data = time.monotonic() + seconds, os.urandom(1 << 16)
        while time.monotonic() < end:
            zlib.compress(data, 9)

    def work():
        thread = threading.Thread(target=compress)
        thread.start()
        thread.join()

    return forked(work)


def new_code(seconds):
    body = "def f(until):\n while time.monotonic() < until:\n  for i in range(2000): pass\n if z:\n"
    scope = {}
    exec(compile(body + "  a[i]+=b[j]*(c+d)-e(f,g)\n" * 18000, "<made>", "exec"), scope)
    code = scope["f"].__code__
    names = [name for name in ("co_name", "co_qualname") if hasattr(code, name)]

    def work():
        end, number = time.monotonic() + seconds, 0
        while time.monotonic() < end:
            number += 1
            new = types.FunctionType(code.replace(**{k: "f%d" % number for k in names}), {"time": time, "z": 0})
            new(time.monotonic() + 0.03)

    print("table", len(getattr(code, "co_linetable", b"") or code.co_lnotab), flush=True)
    return forked(work)


def main():
    sys.path.insert(0, sys.argv[1])
    import train

    device = train.Device()
    kernel = device.kernel("step", 20)
    pid, is_over = {"becomes": becomes, "threads": threads, "new_code": new_code}[sys.argv[2]](float(sys.argv[3]))
    print("child", pid, flush=True)
    end, before = time.monotonic() + 1, None
    while not is_over():
        device.launch(kernel)
        device.synchronize()
        time.sleep(0.01)
        if before is None and time.monotonic() > end:
            before = rss_kb()
    print("grown", rss_kb() - (before or rss_kb()), "kB", flush=True)
    print("done", flush=True)


if __name__ == "__main__":
    main()
