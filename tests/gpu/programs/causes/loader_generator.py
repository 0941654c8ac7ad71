# SPDX-License-Identifier: Apache-2.0
"""Batches from a plain Python generator, decoded where they are used. Fixed: the same generator in 8 DataLoader workers."""

import time

import torch
from torch.utils.data import DataLoader, IterableDataset, get_worker_info
from torchside import Form, Heavy, main


def records(decode_s, at=0, stride=1):
    while True:
        until = time.perf_counter() + decode_s
        while time.perf_counter() < until:  # SITE
            sum(range(100))  # SITE
        yield torch.full((65536,), float(at % 7))
        at += stride


class Stream(IterableDataset):
    def __init__(self, decode_s):
        self.decode_s = decode_s

    def __iter__(self):
        me = get_worker_info()
        return records(self.decode_s, me.id, me.num_workers)


def build(form, ctx):
    model = Heavy(ctx, ms=8)
    decode_s = ctx.seconds(0.016)
    if form == "slow":
        batches = records(decode_s)
    else:
        batches = iter(DataLoader(Stream(decode_s), batch_size=None, num_workers=8, pin_memory=ctx.on_gpu, persistent_workers=True))
    return Form(lambda _i: model.train(next(batches).to(ctx.device, non_blocking=True)), lead=4)


if __name__ == "__main__":
    main(build, steps=120)
