# SPDX-License-Identifier: Apache-2.0
"""Harmless: a busy background thread that works without the GIL (checksums of large buffers)."""

import threading
import zlib

import torch
from torchside import Form, Heavy, bare, main


def checksums(active):
    data = bytes(64 << 20)
    while True:
        active.wait()
        zlib.crc32(data)


def build(form, ctx):
    model = Heavy(ctx, ms=10)
    if form == "bare":
        return bare(ctx, model)
    x = torch.ones(16, device=ctx.device)
    active = threading.Event()
    threading.Thread(target=checksums, args=(active,), daemon=True).start()
    return Form(lambda _i: model.train(x), begin=active.set, end=active.clear)


if __name__ == "__main__":
    main(build, steps=110, forms=("slow", "bare"))
