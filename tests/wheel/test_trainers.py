# SPDX-License-Identifier: Apache-2.0
"""Purpose: Hugging Face Trainer, Accelerate and Lightning, the real ones, on the CPU beside a simulated GPU: with one line of ours
each of their steps is a step of the trace, and the verdict is in the tracker when training ends."""

import json
import pathlib
import subprocess
import tempfile
import unittest

from wheel_tools import ROOT, TOOLS, install, run, tool

PACKAGES = ["transformers==4.30.2", "accelerate==0.21.0", "pytorch-lightning==1.9.5", "tensorboard==2.14.0", "pyarrow==17.0.0", "pandas==2.0.3",
            "polars==1.8.2", "numpy<2"]
STEPS = 40

# A tiny model, and what keeps the simulated GPU waiting: a value read back after every block.
COMMON = """
import sys, torch
sys.path.insert(0, {victims!r})
sys.argv = ["train.py", "--mode", "sync"]
from train import Device, Model
device = Device()
gpu = Model(device, 6, 30)
class Tiny(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(4, 1)
    def forward(self, x, labels=None):
        gpu.step(after_block=gpu.look_at)
        loss = self.layer(x).square().mean()
        return {{"loss": loss, "logits": loss}}
data = [{{"x": torch.ones(4), "labels": torch.zeros(1)}} for _ in range({batches})]
"""

TRANSFORMERS = """
import transformers, gapprobe.transformers
arguments = transformers.TrainingArguments(output_dir=OUT, num_train_epochs=1, per_device_train_batch_size=1, gradient_accumulation_steps=2,
    report_to=["tensorboard"], no_cuda=True, save_strategy="no", disable_tqdm=True, logging_steps=1000)
trainer = transformers.Trainer(model=Tiny(), args=arguments, train_dataset=data)
gapprobe.transformers.attach(trainer)
trainer.train()
"""

# (Debian's PyTorch 1.13 cannot import its FSDP and shards under Python 3.11, which Lightning does;
# and it calls itself 1.13.0a0, which Lightning takes for older than 1.13)
LIGHTNING = """
from unittest.mock import MagicMock
for name in ("_shard", "_shard.sharded_tensor", "fsdp", "fsdp.fully_sharded_data_parallel", "fsdp.sharded_grad_scaler", "fsdp.wrap"):
    sys.modules["torch.distributed." + name] = MagicMock()
torch.__version__ = "1.13.1"
import pytorch_lightning as pl, gapprobe.lightning
from pytorch_lightning.loggers import TensorBoardLogger
class Module(pl.LightningModule):
    def __init__(self):
        super().__init__()
        self.tiny = Tiny()
    def training_step(self, batch, _):
        return self.tiny(**batch)["loss"]
    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.1)
trainer = pl.Trainer(accelerator="cpu", max_epochs=1, accumulate_grad_batches=2, logger=TensorBoardLogger(OUT), enable_progress_bar=False,
    enable_model_summary=False, enable_checkpointing=False, callbacks=[gapprobe.lightning.GapprobeCallback()])
trainer.fit(Module(), torch.utils.data.DataLoader(data, batch_size=1))
"""

ACCELERATE = """
import accelerate, gapprobe.accelerate
accelerator = accelerate.Accelerator(cpu=True, gradient_accumulation_steps=2, log_with="tensorboard", project_dir=OUT)
accelerator.init_trackers("run")
model = Tiny()
model, optimizer, loader = accelerator.prepare(model, torch.optim.SGD(model.parameters(), lr=0.1), torch.utils.data.DataLoader(data, batch_size=1))
for batch in gapprobe.accelerate.steps(accelerator, loader):
    with accelerator.accumulate(model):
        accelerator.backward(model(**batch)["loss"])
        optimizer.step()
        optimizer.zero_grad()
gapprobe.accelerate.log_verdict(accelerator)
accelerator.end_training()
"""

READ_TRACKER = """
import json, pathlib, sys
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
found = {}
for file in pathlib.Path(sys.argv[1]).rglob("events.out.tfevents.*"):
    events = EventAccumulator(str(file)).Reload()
    found.update({tag: events.Scalars(tag)[-1].value for tag in events.Tags()["scalars"]})
print(json.dumps(found))
"""

READ_TRACE = """
import json, sys, gapprobe
run = gapprobe.load(sys.argv[1])
steps, events = run.steps, run.events
print(json.dumps({
    "code": run.verdict.code, "text": run.verdict.text, "line": run.verdict.site.line, "step_ms": run.verdict.step_ms,
    "steps": [len(steps), steps.to_arrow().num_rows, len(steps.to_pandas()), steps.to_polars().height],
    "kernels": sorted(row["name"] for row in run.kernels), "gaps": len(run.gaps),
    "events": [events.to_arrow().num_rows, len(events.to_pandas()), events.to_polars().height],
    "source": run.analysis["steps"]["source"]}))
try:
    gapprobe.load("/nowhere.json.gz")
except gapprobe.Failed as e:
    assert "/nowhere.json.gz" in str(e) and "hint: " in str(e), e
"""


def setUpModule():
    global BIN, SIM
    found = subprocess.run([ROOT / "scripts/cpu-torch"], stdout=subprocess.PIPE, text=True)
    if found.returncode == 3:
        raise unittest.SkipTest("no PyTorch without CUDA here")
    wheel = run(ROOT / "scripts/wheel", "--built", tempfile.mkdtemp(prefix="gapprobe-wheel-"))[0].strip()
    home = install(wheel, found.stdout.strip(), by="uv", options=["--system-site-packages"])
    uv = tool("uv==0.13.9") / "bin/uv"
    # (PyTorch is the system's, which uv does not count)
    without = pathlib.Path(tempfile.mkdtemp()) / "overrides.txt"
    without.write_text("torch ; python_version < '3'\n")
    run(uv, "pip", "install", "--quiet", "--python", home / "bin/python", "--override", without, *PACKAGES)
    BIN, SIM = home / "bin", TOOLS / "wheel-sim"
    run(ROOT / "scripts/sim-build", SIM)


class Trainers(unittest.TestCase):
    def test_steps_are_marked_and_the_verdict_is_in_the_tracker(self):
        for name, body in (("transformers", TRANSFORMERS), ("lightning", LIGHTNING), ("accelerate", ACCELERATE)):
            with self.subTest(name):
                folder = pathlib.Path(tempfile.mkdtemp(prefix=f"gapprobe-{name}-"))
                script = folder / "train_it.py"
                script.write_text(f"OUT = {str(folder / 'log')!r}\n" + COMMON.format(victims=str(ROOT / "tests/victims"), batches=2 * STEPS) + body)
                _, said = run(BIN / "gapprobe", "run", "--dir", folder, BIN / "python", script, LD_LIBRARY_PATH=SIM / "13.0")
                trace = next(folder.glob("gapprobe-*.json.gz"))
                read = json.loads(run(BIN / "python", "-c", READ_TRACE, trace)[0])
                self.assertEqual(read["source"], "marks", said)
                self.assertLessEqual(abs(read["steps"][0] - STEPS), 1, "a step of the trainer is one of the trace")
                self.assertEqual(len(set(read["steps"])), 1, "the same rows in all libraries")
                self.assertEqual(len(set(read["events"])), 1)
                self.assertGreater(read["events"][0], 1000)
                self.assertEqual(read["code"], "GP101", said)
                self.assertIn("gemm_qkv", read["kernels"])
                tracked = json.loads(run(BIN / "python", "-c", READ_TRACKER, folder / "log")[0])
                tracked = {tag.split("gapprobe/")[1]: value for tag, value in tracked.items() if "gapprobe/" in tag}
                self.assertEqual(tracked["code"], 101)
                self.assertLess(abs(tracked["step_ms"] / read["step_ms"] - 1), 0.2)
                self.assertLess(tracked["predicted_step_ms"], tracked["step_ms"])

    def test_without_gapprobe_they_do_nothing(self):
        folder = pathlib.Path(tempfile.mkdtemp(prefix="gapprobe-none-"))
        script = f"OUT = {str(folder)!r}\n" + COMMON.format(victims=str(ROOT / "tests/victims"), batches=4) + ACCELERATE
        run(BIN / "python", "-c", script, LD_LIBRARY_PATH=SIM / "13.0")
        tracked = run(BIN / "python", "-c", READ_TRACKER, folder)[0]
        self.assertNotIn("gapprobe/", tracked)


if __name__ == "__main__":
    unittest.main()
