# SPDX-License-Identifier: Apache-2.0
"""A DataLoader without workers and a CPU-heavy `__getitem__`: the launching thread decodes. Fixed: 8 workers, pinned."""

import time

import torch
from torch.utils.data import DataLoader, Dataset
from torchside import Form, Heavy, main


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
    model = Heavy(ctx, ms=8)
    workers = {"slow": 0, "fixed": 8}[form]
    loader = DataLoader(Images(ctx.seconds(0.001)), batch_size=16, num_workers=workers, pin_memory=ctx.on_gpu,
                        persistent_workers=workers > 0)
    batches = iter(loader)
    return Form(lambda _i: model.train(next(batches).to(ctx.device, non_blocking=True)), lead=4)


if __name__ == "__main__":
    main(build, steps=120)
