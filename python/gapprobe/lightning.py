# SPDX-License-Identifier: Apache-2.0
"""Lightning: `Trainer(callbacks=[gapprobe.lightning.GapprobeCallback()])`."""

try:
    from lightning.pytorch import Callback
except ImportError:
    from pytorch_lightning import Callback

import gapprobe


class GapprobeCallback(Callback):
    """Marks the trainer's steps, and logs the verdict at the end of training to its loggers."""

    def on_train_batch_start(self, trainer, pl_module, batch, batch_idx):
        if batch_idx % trainer.accumulate_grad_batches == 0:
            gapprobe.step()

    def on_train_end(self, trainer, pl_module):
        found = gapprobe.verdict()
        if found is not None:
            for logger in trainer.loggers:
                logger.log_metrics(found.metrics(), step=trainer.global_step)
