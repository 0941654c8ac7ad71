# SPDX-License-Identifier: Apache-2.0
"""The PyTorch side of the programs in this folder: one heavy layer, a light stem, and a prefetcher that does it right."""

import frame
import torch
from frame import Form  # noqa: F401  (for the programs)
from mlp import Block
from torch import nn
from torch.nn import functional as F
from training import Context

WIDTH = 8192
ROWS_A_MS = 2300  # of Heavy.train, two products a step, at 690 TFLOP/s and with what stands around them
LIGHT = 64


class Torch(frame.Sizes, Context):
    def __init__(self, device, tiny):
        Context.__init__(self, device, tiny)
        torch.manual_seed(20261122)

    def sync(self, _value=None):
        Context.sync(self)


class Heavy:
    """One wide layer over many resident rows: `ms` milliseconds of GPU work a training step from about 15 launches, so
    that the launching is no trouble. What is given to it scales the rows: the work waits for it."""

    def __init__(self, ctx, ms):
        width = ctx.size(WIDTH, 32)
        self.layer = nn.Linear(width, width).to(ctx.device, torch.bfloat16)
        self.rows = torch.randn(ctx.size(int(ms * ROWS_A_MS), 16), width, device=ctx.device, dtype=torch.bfloat16)
        self.optimizer = torch.optim.SGD(self.layer.parameters(), lr=1e-5)

    def scaled(self, x):
        return self.rows * (1 + x.to(self.rows.dtype).mean() * 1e-3)

    def train(self, x):
        """One training step; the loss, still on the GPU."""
        self.optimizer.zero_grad(set_to_none=True)
        loss = self.layer(self.scaled(x)).square().mean()
        loss.backward()
        self.optimizer.step()
        return loss.detach()

    @torch.no_grad()
    def infer(self, x):
        """Half the work of a training step: one score a row."""
        return F.linear(self.scaled(x), self.layer.weight).mean(1)


class Thin(nn.Module):
    """A block of three launches, and of less GPU work for the host's time than `Block`: what the launches cost stands out."""

    def __init__(self, width):
        super().__init__()
        self.norm = nn.LayerNorm(width)

    def forward(self, x):
        return x + torch.relu(self.norm(x))


class Stem:
    """Frozen light blocks in front: much launching, little GPU work. Where the queue is empty when it begins, the GPU
    waits for all of its launches; where it is full, for none.

    80 blocks are 880 launches: 9 ms of the host's time where it is fast, 17 where it is slow, in one process and the next, and within one (H100, virtual
    CPUs, 2026-11-25). What stands behind them is so heavy that the host keeps ahead even then once nothing waits: else the fixed form's time
    is that of its host, no two processes agree on it, and what the fix saves cannot be measured to a fifth."""

    def __init__(self, ctx, blocks, block=Block):
        width = ctx.size(LIGHT, 16)
        self.blocks = [block(width).to(ctx.device).requires_grad_(False) for _ in range(ctx.size(blocks, 3))]
        self.input = torch.randn(width, width, device=ctx.device)

    @torch.no_grad()
    def run(self):
        x = self.input
        for block in self.blocks:
            x = block(x)
        return x


class Prefetch:
    """Pinned batches, each copied on a stream of its own while the one before is at work."""

    def __init__(self, ctx, host):
        self.on_gpu, self.at = ctx.on_gpu, 0
        if not self.on_gpu:
            self.host = host
            return
        self.host = [h.pin_memory() for h in host]
        self.side = torch.cuda.Stream()
        self.slots = [torch.empty_like(host[0], device=ctx.device) for _ in range(2)]
        self.ready = [torch.cuda.Event() for _ in range(2)]
        self.used = [torch.cuda.Event() for _ in range(2)]
        self._fetch(0)

    def _fetch(self, i):
        with torch.cuda.stream(self.side):
            self.side.wait_event(self.used[i % 2])
            self.slots[i % 2].copy_(self.host[i % len(self.host)], non_blocking=True)
            self.ready[i % 2].record(self.side)

    def work(self, train):
        """`train` on the next batch, while the one after it comes."""
        i, self.at = self.at, self.at + 1
        if not self.on_gpu:
            return train(self.host[i % len(self.host)])
        self._fetch(i + 1)
        here = torch.cuda.current_stream()
        here.wait_event(self.ready[i % 2])
        value = train(self.slots[i % 2])
        self.used[i % 2].record(here)
        return value


def captured(ctx, step):
    """`step` as a CUDA graph, recorded in its first step: steps that warm it up belong to the loop, not to what was long before."""
    graph = []

    def run(i):
        if not graph:
            graph.append(ctx.captured(step))
        return graph[0](i)

    return run


def bare(ctx, heavy):
    """The heavy step as a CUDA graph over resident data: what is left when host, input and copies cost nothing at all."""
    x = torch.zeros(16, device=ctx.device)
    return captured(ctx, lambda _i: heavy.train(x))


def main(build, **options):
    frame.main(build, Torch, **options)
