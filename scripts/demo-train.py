# SPDX-License-Identifier: Apache-2.0
"""The demo's training loop: a small GPT in PyTorch on a GPU, with a habit that costs time.

After every layer it asks the GPU for one number (`.item()`), as monitoring code likes to: the host waits, the queue runs
dry, the GPU idles until the next kernels arrive. `--fixed` keeps the numbers on the GPU; compare the two.
"""

import argparse

import torch
from torch import nn


class Block(nn.Module):
    """One transformer layer."""

    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.before, self.after = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x):
        batch, length, width = x.shape
        q, k, v = (part.view(batch, length, self.heads, -1).transpose(1, 2) for part in self.qkv(self.before(x)).chunk(3, -1))
        mixed = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(mixed.transpose(1, 2).reshape(batch, length, width))
        return x + self.mlp(self.after(x))


def main():
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--steps", type=int, default=150)
    arguments.add_argument("--fixed", action="store_true", help="keep the monitored numbers on the GPU")
    options = arguments.parse_args()

    torch.manual_seed(0)
    device, width, words = torch.device("cuda"), 768, 8192
    embed, head = nn.Embedding(words, width).to(device), nn.Linear(width, words).to(device)
    blocks = nn.ModuleList(Block(width, 12) for _ in range(12)).to(device)
    parameters = [*embed.parameters(), *blocks.parameters(), *head.parameters()]
    optimizer = torch.optim.AdamW(parameters, lr=3e-4, fused=True)
    tokens = torch.randint(words, (64, 8, 257), device=device)

    for step in range(options.steps):
        batch = tokens[step % len(tokens)]
        seen = []
        with torch.autocast("cuda", torch.bfloat16):
            x = embed(batch[:, :-1])
            for block in blocks:
                x = block(x)
                largest = x.detach().abs().amax()
                seen.append(largest if options.fixed else largest.item())
            loss = nn.functional.cross_entropy(head(x).flatten(0, 1), batch[:, 1:].flatten())
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        if (step + 1) % 50 == 0:
            print(f"step {step + 1:4d}  loss {loss.item():.4f}  largest activation {float(max(seen)):.1f}", flush=True)


if __name__ == "__main__":
    main()
