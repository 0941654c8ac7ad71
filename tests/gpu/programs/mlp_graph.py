# SPDX-License-Identifier: Apache-2.0
"""The CUDA graph of the 40 tiny MLP blocks. Truth: the GPU waits for nobody; its kernels are small.

Nothing to fix on the host, so there is no fixed form: any accused wait is a false one.
"""

from mlp import training_step
from training import main


def build(_form, ctx):
    return ctx.captured(training_step(ctx, fused=True))


if __name__ == "__main__":
    main("mlp_graph", build, steps={"slow": 1500})
