# SPDX-License-Identifier: Apache-2.0
"""A host that sleeps between steps, longer than the GPU works. Truth: SLEEP, which is a kind of HOST.

The fixed form does not sleep. (Python between steps is `causes/host_python.py`.)
"""

import time

import torch
from training import main
from wide import train_on, wide_model

SLEEP_S = 0.012


def build(form, ctx):
    model, width = wide_model(ctx, 4096, 4)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)
    x = torch.randn(ctx.size(8192, 8), width, device=ctx.device, dtype=torch.bfloat16)

    def step(_i):
        loss = train_on(model, optimizer, x)
        if form == "slow":
            time.sleep(SLEEP_S)
        return loss

    return step


if __name__ == "__main__":
    main("host_sleep", build, steps={"slow": 350, "fixed": 700})
