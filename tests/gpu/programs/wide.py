# SPDX-License-Identifier: Apache-2.0
"""A few wide layers: much GPU work from few launches, for the programs whose trouble is not the launching."""

import torch
from torch import nn


def wide_model(ctx, width, layers):
    width = ctx.size(width, 32)
    stack = []
    for _ in range(layers):
        stack += [nn.Linear(width, width), nn.ReLU()]
    return nn.Sequential(*stack).to(ctx.device, torch.bfloat16), width


def train_on(model, optimizer, x):
    """One step on `x`; returns the loss, still on the GPU."""
    optimizer.zero_grad(set_to_none=True)
    loss = model(x).square().mean()
    loss.backward()
    optimizer.step()
    return loss.detach()
