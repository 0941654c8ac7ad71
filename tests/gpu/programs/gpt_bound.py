# SPDX-License-Identifier: Apache-2.0
"""A 12-layer GPT in bf16 with a batch that keeps the GPU full. Truth: GPU-BOUND.

The fixed form takes all launching away (one CUDA graph a step): where even that wins little, the host was no limit.
"""

from gpt import training_step
from training import main

BATCH, LENGTH = 32, 512


def build(form, ctx):
    step = training_step(ctx, batch=BATCH, length=LENGTH, capturable=form == "fixed")
    return ctx.captured(step) if form == "fixed" else step


if __name__ == "__main__":
    main("gpt_bound", build, steps={"slow": 90, "fixed": 90})
