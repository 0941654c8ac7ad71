#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A program that launches kernels and profiles some of them by CUPTI's V2 API, through ctypes and in the order of calls
that PyTorch's torch.profiler._cuspy has, written from NVIDIA's documentation of CUPTI 13.5.

    v2_profiled.py CUPTI WHEN CYCLES [threads]

CUPTI   a libcupti of 13.2 or later
WHEN    first: the client subscribes before cuInit; later: after 300 kernels that nobody but a preloaded profiler sees
CYCLES  so often: on, 100 kernels, off, 100 kernels
threads two threads launch and copy meanwhile

Prints each call's result that is not 0, and of each cycle the kernels that the client saw, with times. Ends with 1 where a call of CUDA fails.
"""

import ctypes
import sys
import threading
from ctypes import POINTER, Structure, byref, c_char, c_char_p, c_int, c_size_t, c_uint8, c_uint32, c_uint64, c_void_p, sizeof

KERNEL, USER_DEFINED_RECORDS = 10, 11
KIND, START, END, CORRELATION = 0, 7, 8, 22
BUFFER_BYTES = 1 << 20
PTX = b".version 6.0\n.target sm_50\n.address_size 64\n.visible .entry k() { ret; }\n"


class SubscriberParams(Structure):
    _fields_ = [("size", c_size_t), ("name", c_char_p), ("old_name", c_void_p), ("old_size", c_size_t), ("allow_multiple", c_uint8),
                ("padding", c_uint8 * 7)]


class Selection(Structure):
    _fields_ = [("size", c_size_t), ("count", c_size_t), ("fields", POINTER(c_int))]


class Config(Structure):
    _fields_ = [("size", c_size_t), ("selection", Selection), ("options", c_void_p)]


class Entry(Structure):
    _fields_ = [("size", c_size_t), ("field", c_int), ("offset", c_size_t), ("bytes", c_size_t), ("alignment", c_size_t)]


class Layout(Structure):
    _fields_ = [("size", c_size_t), ("entries", POINTER(Entry)), ("count", c_size_t), ("record", c_size_t)]


class Completed(Structure):
    _fields_ = [("size", c_size_t), ("thread", c_uint64), ("layouts", POINTER(POINTER(Layout))), ("count", c_size_t)]


REQUEST = ctypes.CFUNCTYPE(None, POINTER(c_void_p), POINTER(c_size_t), POINTER(c_size_t), c_void_p)
COMPLETE = ctypes.CFUNCTYPE(None, c_void_p, c_size_t, c_size_t, POINTER(Completed))
CALLBACK = ctypes.CFUNCTYPE(None, c_void_p, c_int, c_uint32, c_void_p)


class Client:
    """One client, as often on and off as is wanted."""

    def __init__(self, path):
        self.cupti = ctypes.CDLL(path)
        self.seen, self.kept = [], []
        self.functions = REQUEST(self.request), COMPLETE(self.complete), CALLBACK(lambda *_: None)
        self.fields = (c_int * 4)(KIND, START, END, CORRELATION)
        self.config = Config(sizeof(Config), Selection(sizeof(Selection), 4, self.fields), None)
        self.handle = c_void_p()

    def say(self, name, *words):
        result = getattr(self.cupti, name)(*words)
        if result:
            print(f"{name}: {result}")

    def request(self, buffer, size, most, _):
        memory = (c_uint64 * (BUFFER_BYTES // 8))()
        self.kept.append(memory)
        buffer[0], size[0], most[0] = ctypes.addressof(memory), BUFFER_BYTES, 0

    def complete(self, buffer, _, valid, told):
        layouts = [told.contents.layouts[i] for i in range(told.contents.count)] if told else []
        layout = next((at.contents for at in layouts if at and at.contents.record), None)
        if not layout or not valid:
            return
        places = {layout.entries[i].field: (layout.entries[i].offset, layout.entries[i].bytes) for i in range(layout.count)}
        data = ctypes.string_at(buffer, valid)
        for at in range(0, valid - layout.record + 1, layout.record):
            def read(field, at=at):
                offset, size = places[field]
                return int.from_bytes(data[at + offset:at + offset + size], "little")
            self.seen.append((read(START), read(END), read(CORRELATION)))

    def on(self):
        params = SubscriberParams(sizeof(SubscriberParams), b"a client of tests", ctypes.cast((c_char * 64)(), c_void_p), 64, 1)
        yes, one = c_uint8(1), c_size_t(1)
        self.say("cuptiSubscribe_v2", byref(self.handle), self.functions[2], None, byref(params))
        self.say("cuptiActivitySetAttribute_v2", self.handle, USER_DEFINED_RECORDS, byref(one), byref(yes))
        self.say("cuptiActivityRegisterCallbacks_v2", self.handle, self.functions[0], self.functions[1])
        self.say("cuptiActivityEnable_v2", self.handle, KERNEL, byref(self.config))

    def off(self):
        no, one = c_uint8(0), c_size_t(1)
        self.say("cuptiActivityFlushAll", 1)
        self.say("cuptiActivityDisable_v2", self.handle, KERNEL, byref(self.config))
        self.say("cuptiActivitySetAttribute_v2", self.handle, USER_DEFINED_RECORDS, byref(one), byref(no))
        self.say("cuptiUnsubscribe", self.handle)
        seen, self.seen = self.seen, []
        return seen


def must(result):
    if result:
        sys.exit(f"CUDA error {result}")


class Device:
    """The driver's calls that it takes."""

    def __init__(self, driver):
        self.driver = driver
        self.context, module, self.kernel = c_void_p(), c_void_p(), c_void_p()
        must(self.driver.cuInit(0))
        must(self.driver.cuDevicePrimaryCtxRetain(byref(self.context), 0))
        must(self.driver.cuCtxSetCurrent(self.context))
        must(self.driver.cuModuleLoadData(byref(module), PTX))
        must(self.driver.cuModuleGetFunction(byref(self.kernel), module, b"k"))

    def launch(self, count, stream=None):
        for _ in range(count):
            must(self.driver.cuLaunchKernel(self.kernel, 1, 1, 1, 1, 1, 1, 0, stream, None, None))
        must(self.driver.cuCtxSynchronize())

    def work(self, over):
        must(self.driver.cuCtxSetCurrent(self.context))
        memory, host, stream = c_uint64(), (c_char * 4096)(), c_void_p()
        must(self.driver.cuMemAlloc_v2(byref(memory), 4096))
        must(self.driver.cuStreamCreate(byref(stream), 1))
        while not over.is_set():
            self.launch(20, stream)
            must(self.driver.cuMemcpyDtoH_v2(host, memory, c_size_t(4096)))


def main():
    path, when, cycles, *more = sys.argv[1:]
    client, over = Client(path), threading.Event()
    driver = ctypes.CDLL("libcuda.so.1")
    if when == "first":
        client.on()
    device = Device(driver)
    threads = [threading.Thread(target=device.work, args=(over,)) for _ in range(2 if more else 0)]
    for thread in threads:
        thread.start()
    if when == "later":
        device.launch(300)
    for cycle in range(int(cycles)):
        if cycle or when == "later":
            client.on()
        device.launch(100)
        seen = client.off()
        timed = sum(0 < start <= end for start, end, _ in seen)
        own = len({correlation for *_, correlation in seen})
        print(f"{len(seen)} kernels, {timed} with times, {own} launches" if not more else f"kernels: {len(seen) >= 100 and own >= 100}")
        device.launch(100)
    over.set()
    for thread in threads:
        thread.join()


main()
