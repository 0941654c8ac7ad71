# SPDX-License-Identifier: Apache-2.0
"""Two ranks of one job, a GPU each. This process is rank 0, which is what is judged; it starts the
other one as it was started itself, in the folder `rank1`, whose recording is its own."""

import atexit
import os
import pathlib
import socket
import subprocess
import sys

# NVLink multicast stays off, as in suites/ddp.py
for name, value in {"NCCL_NVLS_ENABLE": "0", "TORCH_SYMM_MEM_DISABLE_MULTICAST": "1", "NVSHMEM_DISABLE_NVLS": "1"}.items():
    os.environ.setdefault(name, value)

import frame  # noqa: E402
import torch  # noqa: E402
import torch.distributed as dist  # noqa: E402
from torch import nn  # noqa: E402
from torchside import Torch  # noqa: E402

WORLD = 2


def partner():
    """Rank 1, started; what names this job is in the environment of both."""
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port = s.getsockname()[1]
    job = {"WORLD_SIZE": str(WORLD), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    os.environ.update(job, RANK="0", LOCAL_RANK="0")
    folder = pathlib.Path("rank1").absolute()
    folder.mkdir(exist_ok=True)
    env = {**os.environ, "RANK": "1", "LOCAL_RANK": "1", "TMPDIR": str(folder)}
    program = [sys.executable, os.path.abspath(sys.argv[0]), *sys.argv[1:]]
    with open(folder / "stdout", "wb") as out, open(folder / "stderr", "wb") as err:
        return subprocess.Popen(program, env=env, cwd=folder, stdin=subprocess.PIPE, stdout=out, stderr=err)


class Ranks(Torch):
    def __init__(self, device, tiny):
        self.rank = int(os.environ.get("RANK", "0"))
        self.other = partner() if self.rank == 0 else None
        on_gpu = device == "cuda"
        if on_gpu:
            torch.cuda.set_device(self.rank)
        super().__init__(f"cuda:{self.rank}" if on_gpu else device, tiny)
        dist.init_process_group("nccl" if on_gpu else "gloo", rank=self.rank, world_size=WORLD)
        atexit.register(self.end)
        dist.all_reduce(torch.zeros(1, device=self.device))  # what NCCL makes at its first call

    def opened(self):
        if self.other is not None:
            self.other.stdin.close()

    def agree(self, n):
        told = torch.tensor([n], device=self.device)
        dist.broadcast(told, 0)
        return int(told.item())

    def end(self):
        dist.destroy_process_group()
        if self.other is not None:
            self.other.wait(10)


def stack(ctx, layers, width):
    """Wide layers without a bias, alike on both ranks."""
    width = ctx.size(width, 16)
    kind = torch.bfloat16 if ctx.on_gpu else torch.float32
    made = [nn.Linear(width, width, bias=False, device=ctx.device, dtype=kind) for _ in range(ctx.size(layers, 2))]
    return nn.Sequential(*made)


def rows(ctx, n, width):
    kind = torch.bfloat16 if ctx.on_gpu else torch.float32
    return torch.randn(ctx.size(n, 4), ctx.size(width, 16), device=ctx.device, dtype=kind)


@torch.no_grad()
def descend(model):
    for p in model.parameters():
        p.add_(p.grad, alpha=-1e-6)
        p.grad = None


def main(build, **options):
    frame.main(build, Ranks, **options)
