# SPDX-License-Identifier: Apache-2.0
"""CUDA calls from everywhere Python code can stand, on the simulated driver, with the truth beside them.

    LD_LIBRARY_PATH=OUT/13.0 SITES_TRUTH=FILE python3 sites.py [all | stress SECONDS]

Every call is a memset of a size that no other has, so that a recording's calls are known one by one. The truth, written
at exit, is a JSON object: "stacks" {number: [[file, function, line], ...]} innermost first, file and function as hex of their
bytes, at most 64 frames; "calls" {size: number}. Code of files that begin with "gen_", "<string>", and a module's own once it is imported, is deleted at once.
"""

import asyncio
import atexit
import contextlib
import ctypes
import gc
import importlib
import itertools
import json
import os
import signal
import sys
import threading
import time
import warnings
import weakref

released = ctypes.CDLL("libcudart.so")  # lets the GIL go during a call
holding = ctypes.PyDLL("libcudart.so")  # keeps it
for library in (released, holding):
    library.cudaMalloc.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
    library.cudaMemsetAsync.argtypes = [ctypes.c_void_p, ctypes.c_int, ctypes.c_size_t, ctypes.c_void_p]

MOST = 64
sizes, stack_numbers = itertools.count(1), itertools.count()
stacks, calls = {}, {}
memory = ctypes.c_void_p()
QUALIFIED = sys.version_info >= (3, 11)


def text(name):
    return name.encode("utf-8", "surrogateescape").hex()


def note(frame):
    """Writes down where `frame` stands and returns the size for the call that its line makes next."""
    size = next(sizes)
    rows = []
    while frame is not None and len(rows) < MOST:
        code = frame.f_code
        rows.append((code.co_filename, code.co_qualname if QUALIFIED else code.co_name, frame.f_lineno or 0))
        frame = frame.f_back
    calls[size] = stacks.setdefault(tuple(rows), next(stack_numbers))
    return size


def call():
    size = note(sys._getframe()); released.cudaMemsetAsync(memory, 0, size, None)


def call_holding():
    size = note(sys._getframe()); holding.cudaMemsetAsync(memory, 0, size, None)


def write_truth():
    gc.collect()
    gc.disable()  # what dies makes calls
    path = os.environ.get("SITES_TRUTH")
    if path:
        rows = {number: [[text(f), text(n), line] for f, n, line in stack] for stack, number in list(stacks.items())}
        with open(path, "w") as out:
            json.dump({"stacks": rows, "calls": dict(calls)}, out)
        time.sleep(0.3)  # what is new is read by the drain thread; then the interpreter takes its code down


def deep(n, then=call):
    if n:
        return deep(n - 1, then)
    return then()


def decorated(function):
    def inner(*arguments, **names):
        return function(*arguments, **names)
    return inner


@decorated
@decorated
def under_decorators():
    call()


class Thing:
    def method(self):
        call()

    @classmethod
    def of_the_class(cls):
        call(); cls.on_its_own()

    @staticmethod
    def on_its_own():
        call_holding()

    @property
    def value(self):
        return call()

    def __enter__(self):
        call()

    def __exit__(self, *_):
        call()

    def __getattr__(self, name):
        call()
        return name

    def __lt__(self, other):
        call()
        return False


class Dying:
    def __del__(self):
        call()


class Cycle(Dying):
    def __init__(self):
        self.me = self


def generator(n):
    for _ in range(n):
        call()
        yield call_holding()


def delegating(n):
    yield from generator(n)
    yield [call() for _ in range(n)]


async def coroutine(n):
    call()
    if n:
        await asyncio.sleep(0)
        await coroutine(n - 1)
    call()


async def numbers():
    for n in range(3):
        call()
        yield n


async def many():
    await asyncio.gather(*(coroutine(3) for _ in range(4)))
    call()
    return [call() async for _ in numbers()]


@contextlib.contextmanager
def context():
    call()
    try:
        yield
    finally:
        call()


def executed_and_deleted(rounds, wait=0.0):
    """The same shape at the same address again and again, with other names and lines behind it."""
    for n in range(rounds):
        source = "\n" * (n % 7) + "call()\ndef f():\n" + "\n" * (n % 5) + "    call()\nf()\n"
        code = compile(source, "gen_%04d.py" % (n % 13), "exec")
        scope = {"call": call}
        exec(code, scope)
        if wait:
            time.sleep(wait)
            exec(code, scope)
        del code, scope
        if n % 20 == 19:
            time.sleep(0.06)  # every stack is a new one: not more of them at once than a thread's ring holds


def names_that_are_not_ascii():
    for name in ("m\u00f3dulo_\u00e9.py", "\u65e5\u672c\u8a9e.py", "\U0001f600.py", os.fsdecode(b"bad_\xff\xfe.py"), "p" * 3000 + ".py"):
        source = "def gr\u00f6\u00dfe():\n    call()\n\ndef \u95a2\u6570():\n\n    gr\u00f6\u00dfe()\n\ndef \U0001d504():\n    \u95a2\u6570()\n\n\U0001d504()\n"
        kept.append(compile(source, name, "exec"))
        exec(kept[-1], {"call": call})


kept = []


def imported():
    folder = os.path.join(os.getcwd(), "imported")
    os.makedirs(folder, exist_ok=True)
    with open(os.path.join(folder, "calls_while_imported.py"), "w") as out:
        out.write("import __main__\n\n__main__.call()\n\n\ndef later():\n    __main__.call()\n")
    sys.path.insert(0, folder)
    importlib.import_module("calls_while_imported").later()


def from_c():
    """Python called by C called by Python."""
    sorted(range(3), key=lambda n: (call(), n)[1])
    sorted([Thing(), Thing()])
    list(map(lambda n: call(), range(2)))
    ctypes.CFUNCTYPE(None)(call)()
    ctypes.PYFUNCTYPE(None)(call_holding)()
    Thing().not_there
    eval("call()")
    with Thing():
        with context():
            call()


def from_signals_and_tracers():
    signal.signal(signal.SIGUSR1, lambda *_: call())
    os.kill(os.getpid(), signal.SIGUSR1)
    for _ in range(1000):
        pass

    def tracer(frame, event, argument):
        sys.settrace(None)
        call()

    sys.settrace(tracer)
    deep(2)
    sys.settrace(None)
    watched = Thing()
    reference = weakref.ref(watched, lambda _: call())
    del watched
    return reference


def dying():
    Dying()
    for _ in range(3):
        Cycle()
    gc.collect()


def forked():
    """A child of a forked process says nothing and harms nobody."""
    child = os.fork()
    if child == 0:
        released.cudaMemsetAsync(memory, 0, 1, None)
        os._exit(7)
    assert os.waitpid(child, 0)[1] == 7 << 8
    call()


def in_threads(n, work):
    threads = [threading.Thread(target=work) for _ in range(n)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def in_greenlets():
    if os.environ["SITES_GREENLET"] not in sys.path:
        sys.path.append(os.environ["SITES_GREENLET"])
    import greenlet

    def one():
        call()
        other.switch()
        deep(5)
        other.switch()

    def two():
        call()
        first.switch()
        call_holding()
        return call()

    first, other = greenlet.greenlet(one), greenlet.greenlet(two)
    deep(3, first.switch)
    call()
    return greenlet.__version__


def everywhere():
    call()
    call_holding()
    for depth in (1, 20, 62, 63, 64, 65, 200):
        deep(depth)
        deep(depth, call_holding)
    under_decorators()
    Thing().method()
    Thing.of_the_class()
    Thing().value
    (lambda: call())()
    [call() for _ in range(3)]
    {n: call() for n in range(2)}
    list(call() for _ in range(3))
    list(delegating(3))
    for _ in range(3): call(); call_holding()
    from_c()
    dying()
    names_that_are_not_ascii()
    imported()
    from_signals_and_tracers()
    asyncio.run(many())


def all_of_it():
    everywhere()
    executed_and_deleted(400)
    executed_and_deleted(15, wait=0.06)
    in_threads(4, everywhere_in_a_thread)
    if os.environ.get("SITES_GREENLET"):
        print("greenlets", in_greenlets())
    forked()
    everywhere_in_a_thread()
    still_running_at_the_end()


def still_running_at_the_end():
    """A thread that makes calls while the interpreter is taken down."""

    def for_ever():
        while True:
            released.cudaMemsetAsync(memory, 0, 0, None)
            time.sleep(0)

    threading.Thread(target=for_ever, daemon=True).start()


def everywhere_in_a_thread():
    for n in range(20):
        time.sleep(0.02)
        deep(n)
        list(delegating(2))
        [call() for _ in range(2)]
        Thing().method()
        executed_and_deleted(10)
        from_c()


def stress(seconds):
    end = time.monotonic() + seconds

    def work(turn):
        while time.monotonic() < end and len(calls) < 3000000:
            turn += 1
            deep(turn % 70)
            executed_and_deleted(3)
            time.sleep(0.003)
            list(delegating(2))
            Cycle()
            from_c()
            if turn % 10 == 0:
                gc.collect()
                executed_and_deleted(1, wait=0.002)
                deep(600)
                if os.environ.get("SITES_GREENLET"):
                    in_greenlets()
            if turn % 40 == 0:
                child = os.fork()
                if child == 0:
                    os._exit(deep(100, lambda: 7))
                assert os.waitpid(child, 0)[1] == 7 << 8
                call()
            kept.append(compile("def f%d():\n    call()\nf%d()" % (turn, turn), "gen_kept_%d.py" % (turn % 50), "exec"))
            exec(kept[-1], {"call": call})
            if len(kept) > 500:
                del kept[:250]

    warnings.simplefilter("ignore", DeprecationWarning)  # of a fork beside threads
    sys.setswitchinterval(1e-4)
    threads = [threading.Thread(target=work, args=(n,)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def at_exit():
    call()
    deep(3)


class AtTheVeryEnd:
    """Dies while the interpreter is taken down: no line, and no harm."""

    def __del__(self, call=released.cudaMemsetAsync, memory=memory):
        call(memory, 0, 0, None)


def main():
    holding.cudaMalloc(ctypes.byref(memory), 1 << 26)
    atexit.register(write_truth)
    atexit.register(at_exit)
    if sys.argv[1:2] == ["stress"]:
        stress(float(sys.argv[2]))
        still_running_at_the_end()
    else:
        all_of_it()
    sys.modules["at_the_very_end"] = AtTheVeryEnd()
    print("calls", len(calls))


if __name__ == "__main__":
    main()
