# SPDX-License-Identifier: Apache-2.0
"""Four workers that wait for slow reads, one sample after another, their processors idle.

Fixed: a worker reads the samples of a batch at once (`__getitems__`)."""

import concurrent.futures
import threading

import storage
import torch
from torch.utils.data import DataLoader, Dataset
from torchside import Form, Heavy, main


class Stored(Dataset):
    def __init__(self, path):
        self.path = path
        self.local = None

    def __len__(self):
        return 1_000_000

    def __getitem__(self, i):
        if self.local is None:  # made in the worker: each thread of it has a connection of its own
            self.local = threading.local()
        if not hasattr(self.local, "socket"):
            self.local.socket = storage.connect(self.path)
        storage.read(self.local.socket)
        return torch.full((4096,), float(i % 7))


class ReadAtOnce(Stored):
    pool = None

    def __getitems__(self, indices):
        if self.pool is None:
            self.local = threading.local()
            self.pool = concurrent.futures.ThreadPoolExecutor(16)
        return list(self.pool.map(self.__getitem__, indices))


def build(form, ctx):
    path = storage.start(f"store-{form}", ctx.seconds(0.005))
    model = Heavy(ctx, ms=8)
    data = (ReadAtOnce if form == "fixed" else Stored)(path)
    batches = iter(DataLoader(data, batch_size=16, num_workers=4, pin_memory=ctx.on_gpu, persistent_workers=True))

    def step(_i):
        batch = next(batches)  # SITE
        return model.train(batch.to(ctx.device, non_blocking=True))

    return Form(step, lead=10)


if __name__ == "__main__":
    main(build, steps=100)
