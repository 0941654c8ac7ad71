# SPDX-License-Identifier: Apache-2.0
"""Accelerate: `for batch in gapprobe.accelerate.steps(accelerator, loader):`."""

import gapprobe


def steps(accelerator, loader):
    """The loader's batches; a step begins with the first of those whose gradients are accumulated."""
    for batch in loader:
        if accelerator.sync_gradients:
            gapprobe.step()
        yield batch


def log_verdict(accelerator, step=None):
    """Logs the verdict of this process to the accelerator's trackers: before `accelerator.end_training()`."""
    found = gapprobe.verdict()
    if found is not None:
        accelerator.log(found.metrics(), step=step)
    return found
