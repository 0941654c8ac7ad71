# SPDX-License-Identifier: Apache-2.0
"""A training, decoding or numerical loop that runs freely for so many seconds and keeps its own clock: when the first step began (CLOCK_MONOTONIC, ns), and each step from
then on, µs, as JSON in --out. Nothing stands between its steps, and nobody waits for its GPU but the loop itself."""

import argparse
import json
import os
import time

from turns import LOOPS


def reduce_overhead(ctx):
    """torch.compile with CUDA graphs."""
    import torch
    from mlp import Block
    from torch import nn
    model = torch.compile(nn.Sequential(*(Block(256) for _ in range(24))).to(ctx.device), mode="reduce-overhead")
    x = torch.randn(256, 256, device=ctx.device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True, capturable=True)

    def step(_i):
        torch.compiler.cudagraph_mark_step_begin()
        optimizer.zero_grad(set_to_none=True)
        model(x).square().mean().backward()
        optimizer.step()

    return step


def decode(ctx):
    """One token a step, of a small GPT with a cache that grows; its token is read each step."""
    import torch
    from torch import nn
    width, layers, longest = 512, 12, 256
    kinds = {"device": ctx.device, "dtype": torch.bfloat16}
    blocks = nn.ModuleList(nn.ModuleDict({"qkv": nn.Linear(width, 3 * width), "out": nn.Linear(width, width), "up": nn.Linear(width, 4 * width),
                                          "down": nn.Linear(4 * width, width), "norm": nn.LayerNorm(width)}) for _ in range(layers)).to(**kinds)
    embedding, head = nn.Embedding(8192, width).to(**kinds), nn.Linear(width, 8192).to(**kinds)
    caches = [torch.zeros(2, 1, 8, longest, 64, **kinds) for _ in range(layers)]
    token = torch.zeros(1, 1, dtype=torch.long, device=ctx.device)

    @torch.no_grad()
    def step(i):
        nonlocal token
        at = i % longest
        h = embedding(token)
        for block, cache in zip(blocks, caches):
            q, k, v = block["qkv"](block["norm"](h)).view(1, 1, 3, 8, 64).permute(2, 0, 3, 1, 4)
            cache[0, :, :, at], cache[1, :, :, at] = k[:, :, 0], v[:, :, 0]
            mixed = nn.functional.scaled_dot_product_attention(q, cache[0, :, :, :at + 1], cache[1, :, :, :at + 1])
            h = h + block["out"](mixed.reshape(1, 1, width))
            h = h + block["down"](nn.functional.gelu(block["up"](h)))
        token = head(h).argmax(-1)
        token.item()

    return step


def rnn(ctx):
    """LSTM cells, a launch at a time."""
    import torch
    cell = torch.nn.LSTMCell(256, 256).to(ctx.device)
    x = torch.randn(32, 64, 256, device=ctx.device)
    optimizer = torch.optim.SGD(cell.parameters(), lr=1e-3)

    def step(_i):
        state = None
        for t in range(x.shape[0]):
            state = cell(x[t], state)
        loss = state[0].square().mean()
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        return loss.item()

    return step


def jax_steps(_ctx=None):
    os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
    import jax
    import jax.numpy as jnp
    key = jax.random.PRNGKey(0)
    weights = [jax.random.normal(jax.random.fold_in(key, i), (1024, 1024)) * 0.03 for i in range(12)]
    x = jax.random.normal(key, (256, 1024))

    def loss(w):
        y = x
        for one in w:
            y = jnp.tanh(y @ one)
        return jnp.mean(y * y)

    @jax.jit
    def once(w):
        value, slope = jax.value_and_grad(loss)(w)
        return [a - 0.01 * b for a, b in zip(w, slope)], value

    def step(_i):
        nonlocal weights
        weights, value = once(weights)
        return float(value)

    return step


def cupy_steps(_ctx=None):
    import cupy
    a = cupy.random.rand(512, 512, dtype=cupy.float32)

    def step(_i):
        b = a
        for _ in range(40):
            b = cupy.tanh(b * 1.01 + 0.1)
        return float(b[0, 0])

    return step


OTHERS = {"reduce_overhead": reduce_overhead, "decode": decode, "rnn": rnn}
WITHOUT_TORCH = {"jax": jax_steps, "jax_graphs": jax_steps, "cupy": cupy_steps}


class Clock:
    def __init__(self, seconds):
        self.seconds, self.began, self.at = seconds, None, []

    def before(self):
        now = time.perf_counter()
        self.began = self.began or now
        self.at.append(now)
        return now < self.began + self.seconds


def main():
    p = argparse.ArgumentParser(prog="free")
    p.add_argument("--program", required=True, choices=[*LOOPS, *OTHERS, *WITHOUT_TORCH, "trainer"])
    p.add_argument("--seconds", type=float, required=True)
    p.add_argument("--out", required=True)
    a = p.parse_args()
    if a.program == "jax":
        os.environ["XLA_FLAGS"] = os.environ.get("XLA_FLAGS", "") + " --xla_gpu_enable_command_buffer="
    clock = Clock(a.seconds)
    if a.program in WITHOUT_TORCH:
        step = WITHOUT_TORCH[a.program]()
    else:
        import torch
        from training import Context
        torch.manual_seed(20261120)
        ctx = Context("cuda", False)
        if a.program == "trainer":
            from turns import trainer
            trainer(ctx, clock)
        else:
            step = {**LOOPS, **OTHERS}[a.program](ctx)
    i = 0
    while a.program != "trainer" and clock.before():
        step(i)
        i += 1
    with open(a.out, "w") as out:
        json.dump({"began_ns": round(clock.began * 1e9), "at_us": [round((t - clock.began) * 1e6) for t in clock.at]}, out)


if __name__ == "__main__":
    main()
