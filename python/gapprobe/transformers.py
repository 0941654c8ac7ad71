# SPDX-License-Identifier: Apache-2.0
"""Hugging Face Trainer: `gapprobe.transformers.attach(trainer)` before `trainer.train()`."""

from transformers import TrainerCallback

import gapprobe


class GapprobeCallback(TrainerCallback):
    """Marks the trainer's steps, and logs the verdict at the end of training to the trackers that it reports to."""

    def __init__(self, trainer):
        self._trainer = trainer

    def on_step_begin(self, args, state, control, **kwargs):
        gapprobe.step()

    def on_train_end(self, args, state, control, **kwargs):
        found = gapprobe.verdict()
        if found is not None:
            self._trainer.log(found.metrics())


def attach(trainer):
    """Adds the callback, before all others: trackers close when training ends."""
    callback = GapprobeCallback(trainer)
    trainer.callback_handler.callbacks.insert(0, callback)
    return callback
