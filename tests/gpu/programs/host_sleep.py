# SPDX-License-Identifier: Apache-2.0
"""A host that sleeps and then computes in Python between steps, longer than the GPU works. Truth: HOST.

The fixed form does not do that work in the loop (as if a thread had prepared it).
"""

import time

import torch
from training import main
from wide import train_on, wide_model

SLEEP_S, PYTHON_S = 0.006, 0.006


def python_work(seconds):
    """Plain Python for about that long: what a tokenizer or an augmentation would be."""
    until = time.perf_counter() + seconds
    words = {}
    while time.perf_counter() < until:
        for n in range(200):
            words[n % 17] = words.get(n % 17, 0) + n
    return words


def build(form, ctx):
    model, width = wide_model(ctx, 4096, 4)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)
    x = torch.randn(ctx.size(8192, 8), width, device=ctx.device, dtype=torch.bfloat16)

    def step(_i):
        loss = train_on(model, optimizer, x)
        if form == "slow":
            time.sleep(SLEEP_S)
            python_work(PYTHON_S)
        return loss

    return step


if __name__ == "__main__":
    main("host_sleep", build, steps={"slow": 350, "fixed": 700})
