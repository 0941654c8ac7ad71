# SPDX-License-Identifier: Apache-2.0
"""40 tiny MLP blocks with a `foreach=False` optimizer: the host launches, the GPU waits. Truth: LAUNCH.

The fixed form fuses the optimizer and replays the step as one CUDA graph.
"""

from mlp import training_step
from training import main


def build(form, ctx):
    if form == "fixed":
        return ctx.captured(training_step(ctx, fused=True))
    return training_step(ctx, fused=False)


if __name__ == "__main__":
    main("mlp_eager", build, steps={"slow": 180, "fixed": 1500})
