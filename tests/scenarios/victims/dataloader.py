# SPDX-License-Identifier: Apache-2.0
"""Training from the real torch.utils.data.DataLoader, its kernels on the simulated driver: dataloader.py FOLDER FORM,
FOLDER that of train.py. A PyTorch for the CPU is enough: it loads and collates, the simulated runtime copies and launches.
Lines that a test looks for end in a mark of their own.

Pinned memory: that of a PyTorch without CUDA cannot be had, so the batch is a type of its own with a method `pin_memory`,
which the loader calls for such types: in its thread of that name where there are workers, else in the launching thread.
"""

import ctypes
import os
import resource
import signal
import socket
import sys
import threading
import time
import warnings

import torch
from torch.utils.data import DataLoader, Dataset

sys.path.insert(0, sys.argv[1])
import train

# What stands in the way of a pinning loader where there is no CUDA: it asks for the current device,
# which is none of torch's.
torch.cuda.current_device = lambda: -1
warnings.simplefilter("ignore")  # more workers than CPUs, a loader that pins without CUDA: meant so

ROWS, WIDTH = 8, 1024
BLOCKS, KERNEL_US = 4, 154  # a step: 33 kernels, 8 ms of the GPU
LOG_EVERY = 10  # steps
MS = 1e-3

# form: (workers, pinned, ms that decoding a sample takes, ms of other work on the host in a step,
# steps); ms that collating takes
COLLATE_MS = {"workers_collate": 44.0, "spawned_collate": 44.0}
METHODS = {"spawned_collate": "spawn"}  # how workers are started, where not by fork
FORMS = {
    "main": (0, False, 3.0, 0, 60),
    "main_pinned": (0, True, 3.0, 0, 60),
    "workers": (2, False, 6.0, 0, 60),
    "workers_pinned": (2, True, 6.0, 0, 60),
    "workers_collate": (2, False, 0.3, 0, 60),
    "spawned_collate": (2, False, 0.3, 0, 60),
    "cheap": (0, False, 0.05, 0, 150),
    "enough": (2, False, 0.3, 0, 150),
    "enough_pinned": (2, True, 0.3, 0, 150),
    "other_work": (2, True, 0.3, 24.0, 60),
    "stored": (3, False, 6.0, 0, 120),  # (of 60 steps 12 samples show what workers wait for)
    "slept": (3, False, 6.0, 0, 120),
}
STORED, SLEPT = "stored", "slept"


class Images(Dataset):
    def __init__(self, decode_s):
        self.decode_s = decode_s

    def __len__(self):
        return 1_000_000

    def __getitem__(self, i):
        until = time.perf_counter() + self.decode_s
        while time.perf_counter() < until:  # DECODE
            sum(range(100))  # DECODE
        return torch.full((WIDTH,), float(i % 7))


def store(seconds):
    """A process that answers each reader after so many seconds, as a remote store does, any number at once. Returns where it is."""
    listening = socket.socket(socket.AF_UNIX)
    listening.bind("")  # a name that the kernel makes up, without a file
    listening.listen(64)
    client = os.getpid()
    if os.fork() == 0:
        threading.Thread(target=end_with, args=(client,), daemon=True).start()
        while True:
            reader, _ = listening.accept()
            threading.Thread(target=answer, args=(reader, seconds), daemon=True).start()
    name = listening.getsockname()
    listening.close()
    return name


def end_with(client):
    while os.getppid() == client:
        time.sleep(0.1)
    os._exit(0)


def answer(reader, seconds):
    while reader.recv(1):
        time.sleep(seconds)
        reader.sendall(b"x" * WIDTH)


class Stored(Images):
    """Each sample is asked of a store, and waited for."""

    def __init__(self, at):
        self.at, self.reader = at, None

    def __getitem__(self, i):
        if self.reader is None:
            self.reader = socket.socket(socket.AF_UNIX)
            self.reader.connect(self.at)
        self.reader.sendall(b"r")
        left = WIDTH
        while left:
            left -= len(self.reader.recv(left))  # READ
        return torch.full((WIDTH,), float(i % 7))


class Slept(Images):
    """Each sample takes as long, and is waited for without anybody being asked."""

    def __getitem__(self, i):
        time.sleep(self.decode_s)
        return torch.full((WIDTH,), float(i % 7))


class Batch:
    """Rows in one tensor; `pin_memory` copies them into page-locked memory of the runtime, kept for later batches."""

    device, free, in_use, pinned_in = None, [], [], set()

    def __init__(self, rows):
        self.rows, self.pinned = torch.stack(rows), None

    def pin_memory(self):
        size = self.rows.numel() * 4
        self.pinned = Batch.free.pop() if Batch.free else Batch.device.malloc(size, host=True)
        ctypes.memmove(self.pinned, self.rows.data_ptr(), size)
        Batch.pinned_in.add(threading.current_thread().name)
        return self

    def to(self, device, place):
        device.copy(place, self.pinned or self.rows.data_ptr(), self.rows.numel() * 4, train.HOST_TO_DEVICE)
        if self.pinned is not None:
            Batch.in_use.append(self.pinned)

    @classmethod
    def copied(cls):
        """The device has done all that it was given."""
        cls.free.extend(cls.in_use)
        cls.in_use.clear()


class Padding:
    """Puts batches together, slowly."""

    def __init__(self, seconds):
        self.seconds = seconds

    def __call__(self, rows):
        until = time.perf_counter() + self.seconds
        while time.perf_counter() < until:  # COLLATE
            sum(range(100))  # COLLATE
        return Batch(rows)


def bookkeeping(seconds):
    until = time.perf_counter() + seconds
    while time.perf_counter() < until:  # OTHER
        sum(range(100))  # OTHER


def waited_for_a_cpu():
    """Seconds that this thread could have run and was given no CPU."""
    with open("/proc/self/schedstat") as counters:
        return int(counters.read().split()[1]) / 1e9


def on_a_cpu(pid):
    """Seconds that a process's main thread was on a CPU."""
    with open("/proc/%d/schedstat" % pid) as counters:
        return int(counters.read().split()[0]) / 1e9


def silence(worker):
    """Spawned workers of PyTorch 1.13 abort at their end now and then, without gapprobe, too (3 of 14 runs on a busy machine)."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), 2)


def main(form):
    workers, pinned, decode_ms, other_ms, steps = FORMS[form]
    device = train.Device()
    Batch.device = device
    model = train.Model(device, BLOCKS, KERNEL_US)
    place = device.malloc(ROWS * WIDTH * 4)
    collate = Padding(COLLATE_MS[form] * MS) if form in COLLATE_MS else Batch
    images = Stored(store(decode_ms * MS)) if form == STORED else (Slept if form == SLEPT else Images)(decode_ms * MS)
    loader = DataLoader(images, batch_size=ROWS, num_workers=workers, collate_fn=collate, pin_memory=pinned,
                        pin_memory_device="simulated" if pinned else "", persistent_workers=workers > 0,
                        multiprocessing_context=METHODS.get(form, "fork") if workers else None,
                        worker_init_fn=silence if form in METHODS else None)
    batches = iter(loader)
    if form in METHODS:
        next(batches)  # they take seconds to begin
    started = sum(on_a_cpu(worker.pid) for worker in batches._workers) if workers else 0  # what they took to begin
    began, queued = time.perf_counter(), waited_for_a_cpu()
    for i in range(steps):
        batch = next(batches)  # NEXT
        batch.to(device, place)
        model.step()
        if other_ms:
            bookkeeping(other_ms * MS)
        if i % LOG_EVERY == LOG_EVERY - 1:
            model.item()
            Batch.copied()
    device.check(device.runtime.cudaDeviceSynchronize())
    took = time.perf_counter() - began
    waited = (waited_for_a_cpu() - queued) / took  # a machine with more to do shows another program than the one written
    if form in METHODS:
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)  # the loader's complains of workers that abort
    del batches
    loader._iterator = None  # ends the workers, so that their CPU time can be asked for
    spent = resource.getrusage(resource.RUSAGE_CHILDREN)
    share = (spent.ru_utime + spent.ru_stime - started) / workers / took if workers else 0
    print("step_ms", took / steps / MS, "waited", waited, "workers_on_cpu", share, "pinned_in", *sorted(Batch.pinned_in))


if __name__ == "__main__":
    main(sys.argv[2])
