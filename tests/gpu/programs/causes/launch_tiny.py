# SPDX-License-Identifier: Apache-2.0
"""Ten tiny MLP blocks trained one kernel after another. Fixed: the step as one CUDA graph."""

import torchside
from mlp import training_step


def build(form, ctx):
    step = training_step(ctx, fused=True, blocks=10)
    return torchside.captured(ctx, step) if form == "fixed" else step


if __name__ == "__main__":
    torchside.main(build, steps={"slow": 60, "fixed": 150})
