# SPDX-License-Identifier: Apache-2.0
"""Two causes: no workers, and the loss fetched in every step in front of many launches. Each fix wins alone."""

import time

import torch
from torch.utils.data import DataLoader, Dataset
from torchside import Form, Heavy, Stem, main


class Images(Dataset):
    def __init__(self, decode_s):
        self.decode_s = decode_s

    def __len__(self):
        return 1_000_000

    def __getitem__(self, i):
        until = time.perf_counter() + self.decode_s
        while time.perf_counter() < until:  # SITE
            sum(range(100))  # SITE
        return torch.full((4096,), float(i % 7))


def build(form, ctx):
    stem, head = Stem(ctx, 40), Heavy(ctx, ms=8)
    workers = 8 if form in ("workers", "fixed") else 0
    batches = iter(DataLoader(Images(ctx.seconds(0.0005)), batch_size=16, num_workers=workers, pin_memory=ctx.on_gpu,
                              persistent_workers=workers > 0))

    def step(_i):
        batch = next(batches).to(ctx.device, non_blocking=True)
        loss = head.train(stem.run().mean() + batch.mean())
        if form in ("slow", "workers"):
            loss.item()  # SITE
        return loss

    return Form(step, lead=4)


if __name__ == "__main__":
    main(build, steps=50, forms=("slow", "workers", "no_sync", "fixed"))
