# SPDX-License-Identifier: Apache-2.0
"""Trains on a PyTorch for the CPU, whose matrix products launch kernels on the simulated driver (libgemm.c), and goes on
after a backward pass that throws, as a search for the largest batch does: throws.py LIBRARY STEPS."""

import ctypes
import sys

# before PyTorch is loaded, which looks in the global scope first
LIBRARY = ctypes.CDLL(sys.argv[1], mode=ctypes.RTLD_GLOBAL)

import torch


class Bad(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x * 1

    @staticmethod
    def backward(ctx, gradient):
        gradient.mm(torch.ones(9, 11))  # thrown
        raise ValueError


def interrupted(_gradient):
    raise KeyboardInterrupt


x, good, bad = torch.ones(7, 8), torch.ones(8, 10, requires_grad=True), torch.ones(8, 9, requires_grad=True)
caught = []
for step in range(int(sys.argv[2])):
    x.mm(good).sum().backward()  # good
    try:
        y = x.mm(bad)  # bad
        if step % 2:
            y.register_hook(interrupted)
        else:
            y = Bad.apply(y)
        y.sum().backward()
    except (ValueError, KeyboardInterrupt) as e:
        caught.append(type(e).__name__)
LIBRARY.synchronize()
print("caught", len(caught), *sorted(set(caught)))
