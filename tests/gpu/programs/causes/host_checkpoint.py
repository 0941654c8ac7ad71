# SPDX-License-Identifier: Apache-2.0
"""A checkpoint written by the training loop every 60 steps. Fixed: a snapshot on the GPU, fetched on a stream of its own
into pinned memory and written by a thread."""

import concurrent.futures

import torch
from torchside import Form, Heavy, main

EVERY = 60


def written_here(model):
    torch.save({"weight": model.layer.weight.detach()}, "checkpoint-slow.pt")  # SITE


class WrittenBeside:
    def __init__(self, weight):
        self.pinned = torch.empty(weight.shape, dtype=weight.dtype, pin_memory=True)
        self.bytes = self.pinned.view(torch.uint8).numpy()
        self.side, self.pool, self.last = torch.cuda.Stream(), concurrent.futures.ThreadPoolExecutor(1), None

    def __call__(self, model):
        if self.last is not None:
            self.last.result()  # the one before: done long ago
        copy = model.layer.weight.detach().clone()
        self.side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(self.side):
            self.pinned.copy_(copy, non_blocking=True)
            done = torch.cuda.Event(blocking=True)
            done.record()
        copy.record_stream(self.side)
        self.last = self.pool.submit(self.write, done)

    def write(self, done):
        done.synchronize()
        with open("checkpoint-fixed.bin", "wb", buffering=0) as f:
            f.write(self.bytes.data)


def build(form, ctx):
    model = Heavy(ctx, ms=4)
    x = torch.ones(16, device=ctx.device)
    save = written_here if form == "slow" or not ctx.on_gpu else WrittenBeside(model.layer.weight)

    def step(i):
        loss = model.train(x)
        if i % EVERY == EVERY - 1:
            save(model)
        return loss

    return Form(step, period=EVERY)


if __name__ == "__main__":
    main(build, steps=4 * EVERY, warmup=0)
