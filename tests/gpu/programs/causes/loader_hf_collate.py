# SPDX-License-Identifier: Apache-2.0
"""Rows as a Hugging Face dataset gives them (dicts of lists), padded in Python by the collator, in the launching thread
(`dataloader_num_workers=0` is that trainer's default). Fixed: 8 workers."""

import time

import torch
from torch.utils.data import DataLoader
from torchside import Form, Heavy, main


class Collator:
    def __init__(self, tokenize_s):
        self.tokenize_s = tokenize_s

    def __call__(self, features):
        ids = [f["input_ids"] for f in features]
        longest = max(map(len, ids))
        until = time.perf_counter() + self.tokenize_s
        padded = None
        while padded is None or time.perf_counter() < until:  # SITE
            padded = list(map(lambda row: row + [0] * (longest - len(row)), ids))  # SITE
        return {"input_ids": torch.tensor(padded), "labels": torch.tensor([f["label"] for f in features])}


class Rows:
    """Map-style, nothing of torch in it."""

    def __len__(self):
        return 1_000_000

    def __getitem__(self, i):
        return {"input_ids": list(range(64 + i % 64)), "label": i % 2}


def build(form, ctx):
    model = Heavy(ctx, ms=8)
    workers = {"slow": 0, "fixed": 8}[form]
    loader = DataLoader(Rows(), batch_size=32, num_workers=workers, collate_fn=Collator(ctx.seconds(0.016)),
                        pin_memory=ctx.on_gpu, persistent_workers=workers > 0)
    batches = iter(loader)

    def step(_i):
        batch = {k: v.to(ctx.device, non_blocking=True) for k, v in next(batches).items()}
        return model.train(batch["input_ids"])

    return Form(step, lead=4)


if __name__ == "__main__":
    main(build, steps=120)
