# SPDX-License-Identifier: Apache-2.0
"""Data-parallel training, one process a rank, told its place by the variables that torchrun sets. Rank 1's shard holds large
images: its two workers cannot keep up, and the other ranks wait for it in the all-reduce. Fixed: all shards hold small ones.
Hang: rank 1 stops after its warm-up and 40 steps, and the others wait in an all-reduce that it never joins until the watchdog of
torch.distributed ends them. When each began its last step is in its file `last_step` (CLOCK_MONOTONIC, ns).

One layer of 8 MB of gradients over many resident rows, about 11 ms of an H200 a step: the all-reduce is short on any link.
The last line on stdout is one JSON object, the truth of this rank."""

import argparse
import datetime
import json
import os
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset

WIDTH, ROWS = 2048, 300_000
BATCH, WORKERS = 16, 2
LARGE_S, SMALL_S = 0.0045, 0.0001  # to decode an image: a batch every 36 ms and every 0.8 ms
LOG_EVERY = 20
WARMUP = 10
HANG_AFTER = WARMUP + 40
WATCHDOG_S = 10  # after so long in one collective the watchdog ends the process
STOPPED_S = 60  # ... and so long the one that stopped is there


class Shard(Dataset):
    def __init__(self, decode_s):
        self.decode_s = decode_s

    def __len__(self):
        return 1_000_000

    def __getitem__(self, i):
        until = time.perf_counter() + self.decode_s
        while time.perf_counter() < until:
            sum(range(100))
        return torch.full((4096,), float(i % 7))


def train(a, rank, device):
    tiny, on_gpu = a.tiny, device.type == "cuda"
    torch.manual_seed(20261122)
    width, kind = (16, torch.float32) if tiny else (WIDTH, torch.bfloat16)
    resident = torch.randn(16 if tiny else ROWS, width, device=device, dtype=kind)
    layer = nn.Linear(width, width, bias=False).to(device, kind)
    model = DistributedDataParallel(layer, device_ids=[device.index] if on_gpu else None)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-5)
    decode_s = (LARGE_S if a.form == "slow" and rank == 1 else SMALL_S) / (20 if tiny else 1)
    loader = DataLoader(Shard(decode_s), batch_size=BATCH, num_workers=WORKERS, pin_memory=on_gpu, persistent_workers=True)
    batches = iter(loader)
    steps = WARMUP + a.steps
    loss = began = None
    for i in range(steps):
        if i == WARMUP:
            loss.item()
            began = time.perf_counter()
        if a.form == "hang":
            with open("last_step", "w") as f:
                f.write(str(time.clock_gettime_ns(time.CLOCK_MONOTONIC)))
            if rank == 1 and i == HANG_AFTER:
                time.sleep(STOPPED_S)
                os._exit(0)
        batch = next(batches)  # SITE
        x = batch.to(device, non_blocking=True)
        optimizer.zero_grad(set_to_none=True)
        loss = model(resident * (1 + x.mean().to(kind) * 1e-3)).square().mean()
        loss.backward()
        optimizer.step()
        if i % LOG_EVERY == LOG_EVERY - 1:
            print(f"step {i + 1} loss {loss.item():.6g}")
    last = loss.item()
    took = time.perf_counter() - began
    return {"true_steps": steps, "step_ms": took * 1e3 / a.steps, "loss": last}


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--form", choices=("slow", "fixed", "hang"), default="slow")
    p.add_argument("--steps", type=int, default=90, help="steps after warm-up")
    p.add_argument("--device", default="cuda")
    p.add_argument("--tiny", action="store_true", help="tiny sizes: try the program without a GPU")
    a = p.parse_args()
    rank, world, local = (int(os.environ[name]) for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK"))
    device = torch.device(a.device, local) if a.device == "cuda" else torch.device(a.device)
    if device.type == "cuda":
        torch.cuda.set_device(device)
    dist.init_process_group("nccl" if device.type == "cuda" else "gloo", timeout=datetime.timedelta(seconds=WATCHDOG_S if a.form == "hang" else 60))
    truth = train(a, rank, device)
    dist.destroy_process_group()
    print(json.dumps({"program": "ddp", "form": a.form, "rank": rank, "world": world, **truth}), flush=True)


if __name__ == "__main__":
    main()
