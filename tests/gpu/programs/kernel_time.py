# SPDX-License-Identifier: Apache-2.0
"""Kernel time a step of one GPT workload, for comparison: --by profiler lets torch.profiler count it; --by gapprobe
opens a capture (GAPPROBE_CAPTURE=profiler) over the same steps, and the summary's totals are the answer."""

import json

import torch
from gpt import training_step
from training import Context, Marks, arguments, kernels_of, pass_gate

STEPS = 40


def main():
    a = arguments("kernel_time", lambda p: p.add_argument("--by", choices=("profiler", "gapprobe"), required=True))
    pass_gate(a)
    torch.manual_seed(20261120)
    ctx = Context(a.device, a.tiny)
    step = training_step(ctx, batch=8, length=512)
    for i in range(20):
        step(i)
    ctx.sync()
    truth = {"program": "kernel_time", "by": a.by, "steps": STEPS}
    if a.by == "profiler":
        truth["kernels"], truth["kernel_ms"] = kernels_of(ctx, step, STEPS)
    else:
        marks = Marks(False)
        marks.capture(True)
        for i in range(STEPS):
            step(i)
        ctx.sync()
        marks.capture(False)
    print(json.dumps(truth), flush=True)


if __name__ == "__main__":
    main()
