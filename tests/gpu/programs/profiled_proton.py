# SPDX-License-Identifier: Apache-2.0
"""Training with Triton's Proton over five steps, three times, training without it in between: what its user gets, counted by kernel."""

import collections
import json
import os
import tempfile

import triton.profiler as proton
from profiled_torch import train


def kernels(node, found):
    """Adds the kernels of a tree of Proton's: it counts each by the name of a leaf."""
    children = node.get("children") or []
    if not children and node.get("metrics", {}).get("count"):
        found[node["frame"]["name"][:80]] += node["metrics"]["count"]
    for child in children:
        kernels(child, found)


def profile(ctx, step):
    with tempfile.TemporaryDirectory() as d:
        proton.start(os.path.join(d, "p"), context="shadow")
        for i in range(5):
            step(i)
        ctx.sync()
        proton.finalize()
        with open(os.path.join(d, "p.hatchet")) as f:
            tree = json.load(f)
    found = collections.Counter()
    for root in tree:
        kernels(root, found)
    return dict(sorted(found.items()))


if __name__ == "__main__":
    train("profiled_proton", profile, 3)
