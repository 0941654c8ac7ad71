# SPDX-License-Identifier: Apache-2.0
"""Two workers where 40 ms of decoding a batch need more, all else done right (pinned, persistent). Fixed: 8 workers."""

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
        while time.perf_counter() < until:
            sum(range(100))
        return torch.full((4096,), float(i % 7))


def build(form, ctx):
    model = Heavy(ctx, ms=8)
    workers = {"slow": 2, "fixed": 8}[form]
    loader = DataLoader(Images(ctx.seconds(0.0025)), batch_size=16, num_workers=workers, pin_memory=ctx.on_gpu,
                        persistent_workers=True)
    batches = iter(loader)

    def step(_i):
        batch = next(batches)  # SITE
        return model.train(batch.to(ctx.device, non_blocking=True))

    return Form(step, lead=8)


if __name__ == "__main__":
    main(build, steps=110)
