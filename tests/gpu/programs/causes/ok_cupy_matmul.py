# SPDX-License-Identifier: Apache-2.0
"""Healthy: large matrix products in CuPy."""

from cupyside import Heavy, main


def build(_form, ctx):
    heavy = Heavy(ctx, ms=8)
    return lambda _i: heavy.run()


if __name__ == "__main__":
    main(build, steps=120, forms=("slow",))
