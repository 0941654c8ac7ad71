# SPDX-License-Identifier: Apache-2.0
"""A log line a sample, flushed each time into a pipe whose reader (a log collector) is slow. Fixed: one line a step."""

import fcntl
import logging
import os
import subprocess
import sys

import torch
from torchside import Form, Heavy, main

COLLECTOR = "import os, sys, time\nwhile os.read(0, 4096):\n    time.sleep(float(sys.argv[1]))"


def collected_log(name, pause_s):
    child = subprocess.Popen([sys.executable, "-S", "-c", COLLECTOR, str(pause_s)], stdin=subprocess.PIPE)
    fcntl.fcntl(child.stdin, fcntl.F_SETPIPE_SZ, 4096)
    log = logging.getLogger(name)
    log.setLevel(logging.INFO)
    log.propagate = False
    log.addHandler(logging.StreamHandler(open(os.dup(child.stdin.fileno()), "w")))
    return log


def build(form, ctx):
    model = Heavy(ctx, ms=8)
    x = torch.ones(16, device=ctx.device)
    log = collected_log(form, ctx.seconds(0.004))
    text = "sample %d: " + "." * 240

    def step(i):
        loss = model.train(x)
        for n in range(64 if form == "slow" else 1):
            log.info(text, n)  # SITE
        return loss

    return Form(step, lead=3)


if __name__ == "__main__":
    main(build, steps=110)
