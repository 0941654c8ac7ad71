# SPDX-License-Identifier: Apache-2.0
"""Healthy: large matrix products as a CUDA graph from the start. There is nothing to take away."""

from torchside import Heavy, bare, main


def build(_form, ctx):
    return bare(ctx, Heavy(ctx, ms=8))


if __name__ == "__main__":
    main(build, steps=120, forms=("slow",))
