# SPDX-License-Identifier: Apache-2.0
"""A model of a real PyTorch for the CPU, whose matrix products launch kernels on the simulated driver (libgemm.c):
modules.py LIBRARY STEPS [graph]; `graph`: one more step is captured, and played as often. No two operators have the same sizes. The last line says, for the kernel of each, the module that
it is of, by named_modules(), the mark of its line, and the operator; a backward pass is of the line of the forward one
but where the program says how it goes."""

import ctypes
import gc
import json
import sys

# before PyTorch is loaded, which looks in the global scope first
LIBRARY = ctypes.CDLL(sys.argv[1], mode=ctypes.RTLD_GLOBAL)

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

BATCH, MODELS = 8, 4
OF_MODULES = {"stem": "stem", "blocks.0.up": "up", "blocks.0.down": "down", "blocks.1.up": "up", "blocks.1.down": "down",
              "extra.a.b.c.d.proj": "extra", "given": "given", "again": "again"}


class Block(nn.Module):
    def __init__(self, wide, inner, out):
        super().__init__()
        self.up, self.down = nn.Linear(wide, inner), nn.Linear(inner, out)

    def forward(self, x):
        hidden = torch.relu(self.up(x))  # up
        return self.down(hidden)  # down


class Taker(nn.Module):
    def forward(self, x, other):
        return other(x)  # given


class Again(nn.Linear):
    def forward(self, x):
        return super().forward(x)  # again


class Own(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, weight):
        ctx.save_for_backward(x, weight)
        return x.mm(weight)  # own forward

    @staticmethod
    def backward(ctx, gradient):
        x, weight = ctx.saved_tensors
        return gradient.mm(weight.t()), x.t().mm(gradient)  # own backward


class Net(nn.Module):
    def __init__(self, again):
        super().__init__()
        self.stem = nn.Linear(16, 24)
        self.blocks = nn.ModuleList([Block(24, 40, 28), Block(28, 44, 32)])
        self.extra = at = nn.Module()  # never called itself, nor are those below
        for name in "abcd":
            setattr(at, name, nn.Module())
            at = getattr(at, name)
        at.proj = nn.Linear(32, 36)
        self.taker, self.given = Taker(), nn.Linear(36, 38)
        self.weight = nn.Parameter(torch.randn(20, 38))
        self.again = again

    def forward(self, x):
        x = self.stem(x)  # stem
        for block in self.blocks:
            x = block(x)
        x = self.extra.a.b.c.d.proj(x)  # extra
        x = self.taker(x, self.given)
        x = nn.functional.linear(x, self.weight)  # functional
        return checkpoint(self.again, x, use_reentrant=False)


def name(*sizes):
    return "gemm_%d_%d_%d" % tuple(sorted(sizes))


def train(steps, is_captured, again):
    """Trains a model of its own, which may lie where the one before lay."""
    net, last, own, tail = Net(again), nn.Parameter(torch.randn(60, 12)), nn.Parameter(torch.randn(12, 52)), nn.Linear(52, 64)
    x = torch.randn(BATCH, 16)

    def step():
        out = net(x) @ last  # outside
        out = Own.apply(out, own)
        out = tail(out)  # tail
        out.sum().backward()
        for p in [*net.parameters(), *tail.parameters(), last, own]:
            p.grad = None

    for _ in range(steps):
        step()
        LIBRARY.synchronize()
    if is_captured:
        LIBRARY.begin_capture()
        step()
        LIBRARY.end_capture()
        LIBRARY.replay(steps)
    return net


def main():
    torch.manual_seed(0)
    torch.set_num_threads(1)
    net = None
    for n in range(MODELS):
        # every other one is given a layer of the one before, which lives on and has it no more
        before, net = net if n % 2 else None, None
        gc.collect()
        again = before._modules.pop("again") if before else Again(20, 60)
        net = train(int(sys.argv[2]) // MODELS, sys.argv[3:] == ["graph"] and n == MODELS - 1, again)
    truth = {}
    for path, module in net.named_modules():
        if path in OF_MODULES:
            marks = [OF_MODULES[path]] * 2
            truth[name(BATCH, *module.weight.shape)] = [path, type(module).__name__, *marks, "aten::linear"]
    truth[name(BATCH, 20, 38)] = ["", "Net", "functional", "functional", "aten::linear"]
    truth[name(BATCH, 52, 64)] = ["", "Linear", "tail", "tail", "aten::linear"]
    truth[name(BATCH, 60, 12)] = [None, None, "outside", "outside", "aten::matmul"]
    truth[name(BATCH, 12, 52)] = [None, None, "own forward", "own backward", "aten::mm"]
    print(json.dumps(truth))


main()
