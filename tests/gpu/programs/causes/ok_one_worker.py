# SPDX-License-Identifier: Apache-2.0
"""Harmless: a single worker, and its 5 ms a batch are enough for 12 ms steps."""

import time

import torch
from torch.utils.data import DataLoader, Dataset
from torchside import Form, Heavy, bare, main


class Images(Dataset):
    def __init__(self, decode_s):
        self.decode_s = decode_s

    def __len__(self):
        return 1_000_000

    def __getitem__(self, i):
        until = time.perf_counter() + self.decode_s
        while time.perf_counter() < until:
            sum(range(100))
        return torch.full((4096,), float(i % 7))


def build(form, ctx):
    model = Heavy(ctx, ms=12)
    if form == "bare":
        return bare(ctx, model)
    loader = DataLoader(Images(ctx.seconds(0.0003)), batch_size=16, num_workers=1, pin_memory=ctx.on_gpu, persistent_workers=True)
    batches = iter(loader)
    return Form(lambda _i: model.train(next(batches).to(ctx.device, non_blocking=True)), lead=4)


if __name__ == "__main__":
    main(build, steps=110, forms=("slow", "bare"))
