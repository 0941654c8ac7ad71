# SPDX-License-Identifier: Apache-2.0
"""Training, twice as many steps; with --subscribe somebody takes CUPTI's subscription half-way and asks for nothing else, as a tool does that only
wants callbacks. Resolved in the global scope, so that it comes by gapprobe's wrapper as a linked client would."""

import ctypes
import json
import sys

import torch
from mlp import training_step
from training import Context, arguments

STEPS = 150


@ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int, ctypes.c_uint32, ctypes.c_void_p)
def called(_user, _domain, _id, _data):
    pass


def subscribe():
    """CUPTI's answer, or None where it is not in the global scope (without gapprobe)."""
    function = getattr(ctypes.CDLL(None), "cuptiSubscribe", None)
    return function(ctypes.byref(ctypes.c_void_p()), called, None) if function else None


def main():
    wanted = "--subscribe" in sys.argv
    sys.argv = [a for a in sys.argv if a != "--subscribe"]
    a = arguments("subscribed_torch")
    torch.manual_seed(20261125)
    ctx = Context(a.device, a.tiny)
    step = training_step(ctx, fused=True, blocks=6)
    host = torch.zeros(1 << 18, pin_memory=ctx.on_gpu)
    device = torch.zeros(1 << 18, device=ctx.device)
    answer = None
    for half in range(2):
        for i in range(STEPS):
            device.copy_(host, non_blocking=True)
            step(i).item()
        ctx.sync()
        if half == 0 and wanted:
            answer = subscribe()
    print(json.dumps({"program": "subscribed_torch", "steps": 2 * STEPS, "subscribed": answer}), flush=True)


if __name__ == "__main__":
    main()
