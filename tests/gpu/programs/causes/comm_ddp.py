# SPDX-License-Identifier: Apache-2.0
"""Two ranks under DistributedDataParallel with one bucket for nearly all gradients, full when the
backward pass is over. Looks bad, and buckets of the usual size (form `fixed`), reduced beside the
backward pass, win little: products take twice as long meanwhile."""

import rankside
from rankside import descend, rows, stack
from torch.nn.parallel import DistributedDataParallel

WIDTH, LAYERS, ROWS = 4096, 24, 640


def build(form, ctx):
    layers = stack(ctx, LAYERS, WIDTH)
    megabytes = 4096 if form == "slow" else 25
    model = DistributedDataParallel(layers, bucket_cap_mb=megabytes, gradient_as_bucket_view=True)
    x = rows(ctx, ROWS, WIDTH)

    def step(_i):
        loss = model(x).square().mean()
        loss.backward()
        descend(layers)
        return loss.detach()

    return step


if __name__ == "__main__":
    rankside.main(build, steps=100)
