# SPDX-License-Identifier: Apache-2.0
"""The GPT of gpt_bound.py and gpt_item.py: bf16, tied embeddings, causal attention, a fused optimizer."""

import torch
from torch import nn
from torch.nn import functional as F


class Block(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.ln1 = nn.LayerNorm(width)
        self.qkv = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)
        self.ln2 = nn.LayerNorm(width)
        self.up = nn.Linear(width, 4 * width)
        self.down = nn.Linear(4 * width, width)

    def forward(self, x):
        b, t, w = x.shape
        q, k, v = self.qkv(self.ln1(x)).view(b, t, 3, self.heads, w // self.heads).permute(2, 0, 3, 1, 4)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(y.transpose(1, 2).reshape(b, t, w))
        return x + self.down(F.gelu(self.up(self.ln2(x))))


class GPT(nn.Module):
    def __init__(self, vocabulary, width, layers, heads, length):
        super().__init__()
        self.tokens = nn.Embedding(vocabulary, width)
        self.positions = nn.Embedding(length, width)
        self.blocks = nn.ModuleList(Block(width, heads) for _ in range(layers))
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, vocabulary, bias=False)
        self.head.weight = self.tokens.weight
        for p in self.parameters():
            if p.dim() > 1:
                nn.init.normal_(p, std=0.02)

    def forward(self, tokens, targets, watch=None):
        """The loss. `watch` is called with each block's output."""
        x = self.tokens(tokens) + self.positions.weight[: tokens.shape[1]]
        for block in self.blocks:
            x = block(x)
            if watch is not None:
                watch(x)
        logits = self.head(self.norm(x))
        return F.cross_entropy(logits.flatten(0, 1), targets.flatten())


def training_step(ctx, *, batch, length, watch=None, capturable=False, layers=12, width=512, vocabulary=262144):
    """A step function that trains the GPT on four batches in turn, all of them on the GPU from the start.

    The vocabulary is a large real one (Gemma's size): head and loss then are most of the GPU's work, so that the queue
    is full while the host launches the light blocks. That is where a forced wait hurts.
    """
    layers, width, vocabulary = ctx.size(layers, 2), ctx.size(width, 32), ctx.size(vocabulary, 128)
    batch, length = ctx.size(batch, 2), ctx.size(length, 16)
    model = GPT(vocabulary, width, layers, ctx.size(8, 2), length).to(ctx.device, torch.bfloat16)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True, capturable=capturable and ctx.on_gpu)
    data = torch.randint(0, vocabulary, (4, batch, length + 1), device=ctx.device)

    def step(i):
        d = data[i % 4]
        optimizer.zero_grad(set_to_none=True)
        loss = model(d[:, :-1], d[:, 1:], watch)
        loss.backward()
        optimizer.step()
        return loss.detach()

    return step
