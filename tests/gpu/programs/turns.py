# SPDX-License-Identifier: Apache-2.0
"""A training loop that goes on only when it is told to: several processes of it, with profilers and without, take turns on one GPU, a block
of steps each. What a profiler costs is the difference between neighbours in time, and the one without has none of its code in it.

The runner writes `N` to stdin, the program does N steps and writes one JSON line to --answers: how long all of them took on the host from an
empty queue to an empty queue, and each step's time on the GPU, by events. An empty stdin, or anything that is no number, ends it.
`--answers` is a named pipe; its first line says that the program is ready: it has taken its GPU and done its warm-up steps. With --held it says
before that that it has imported what it needs, and waits for a line on stdin before it touches its GPU.

`ddp` is one rank of two or more: RANK, WORLD_SIZE, LOCAL_RANK, MASTER_ADDR and MASTER_PORT are told as torchrun tells them, and all ranks are told
the same steps.
"""

import argparse
import json
import os
import sys
import tempfile
import time

LEAD = 2  # steps of a block that do not count: behind a pause everything is cold
WARM_UP = 6
# Its logits and what is computed of them are some 26 GB (four processes did not fit into an H200's 141): who does not play gives its memory back, and
# takes it again in one more step that does not count.
GIVE_BACK = ("gpt_large",)


class Turns:
    """Stands between the steps of a loop: `before()` each one says whether there is to be one more."""

    def __init__(self, ctx, answers, gives_back=False):
        self.ctx, self.answers, self.gives_back = ctx, answers, gives_back
        self.lead = LEAD + gives_back
        self.left, self.done, self.all_steps = WARM_UP, None, 0
        self.events, self.began = [], None

    def mark(self):
        """Remember when the GPU comes by here."""
        self.events.append(self.ctx.event() if self.ctx.on_gpu else time.perf_counter())

    def times(self):
        """Step times of the block, ms."""
        if self.ctx.on_gpu:
            return [a.elapsed_time(b) for a, b in zip(self.events, self.events[1:])]
        return [(b - a) * 1e3 for a, b in zip(self.events, self.events[1:])]

    def say(self, **what):
        self.answers.write(json.dumps(what) + "\n")
        self.answers.flush()

    def before(self):
        """Call it before each step. False: there is no more to do."""
        if self.done is not None:
            if self.done == self.lead:
                self.ctx.sync()
                self.events, self.began = [], time.perf_counter()
            if self.done >= self.lead:
                self.mark()
            self.done += 1
        if self.left == 0:
            self.ctx.sync()
            took = self.done is not None and (time.perf_counter() - self.began) * 1e3
            if self.gives_back and self.ctx.on_gpu:
                import torch
                torch.cuda.empty_cache()
            if self.done is None:
                self.say(ready=True)
            else:
                self.say(steps=self.done - 1 - self.lead, took_ms=took, steps_ms=self.times(), all_steps=self.all_steps)
            told = sys.stdin.readline().strip()
            if not told.isdigit():
                return False
            self.left, self.done = int(told) + self.lead, 0
            return self.before()
        self.left -= 1
        self.all_steps += 1
        return True


def gpt_large(ctx):
    from gpt import training_step
    # (half of what the suite `cost` has: several processes hold it at once)
    return training_step(ctx, batch=16, length=512)


def gpt_small(ctx):
    from gpt import training_step
    return training_step(ctx, batch=4, length=256, vocabulary=8192)


def mlp_eager(ctx):
    from mlp import training_step
    return training_step(ctx, fused=False)


def mlp_graph(ctx):
    from mlp import training_step
    return ctx.captured(training_step(ctx, fused=True))


def compiled(ctx):
    from compiled import build
    return build("slow", ctx)


def trainer(ctx, turns):
    """transformers' own loop, whole: its callback asks before each step."""
    import torch
    import transformers
    from torch import nn

    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            from mlp import Block
            self.net = nn.Sequential(*(Block(ctx.size(512, 16)) for _ in range(ctx.size(12, 2))))

        def forward(self, x, labels):
            out = self.net(x)
            return {"loss": (out - labels).square().mean(), "logits": out}

    class Ask(transformers.TrainerCallback):
        def on_step_begin(self, _args, _state, control, **_rest):
            if not turns.before():
                control.should_training_stop = True
            return control

    width = ctx.size(512, 16)
    data = [{"x": torch.randn(width), "labels": torch.randn(width)} for _ in range(512)]
    with tempfile.TemporaryDirectory() as folder:
        options = transformers.TrainingArguments(
            output_dir=folder, max_steps=10**8, per_device_train_batch_size=64, report_to=[], logging_strategy="no", save_strategy="no",
            disable_tqdm=True, use_cpu=not ctx.on_gpu)
        transformers.Trainer(model=Model(), args=options, train_dataset=data, callbacks=[Ask()]).train()


def ddp(ctx):
    """The small GPT on each of the ranks."""
    import torch
    from gpt import GPT
    from torch.nn.parallel import DistributedDataParallel
    kind = torch.bfloat16 if ctx.on_gpu else torch.float32  # (gloo adds up no bf16)
    length, vocabulary = ctx.size(256, 16), ctx.size(8192, 128)
    model = GPT(vocabulary, ctx.size(512, 32), ctx.size(12, 2), ctx.size(8, 2), length).to(ctx.device, kind)
    model = DistributedDataParallel(model, device_ids=[ctx.device.index] if ctx.on_gpu else None)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=ctx.on_gpu)
    data = torch.randint(0, vocabulary, (4, ctx.size(4, 2), length + 1), device=ctx.device)

    def step(i):
        d = data[i % 4]
        optimizer.zero_grad(set_to_none=True)
        model(d[:, :-1], d[:, 1:]).backward()
        optimizer.step()

    return step


def join(device):
    """Become one of the ranks; the device that this one has."""
    import torch
    import torch.distributed
    if device == "cuda":
        device = f"cuda:{os.environ['LOCAL_RANK']}"
        torch.cuda.set_device(device)
    torch.distributed.init_process_group("nccl" if device != "cpu" else "gloo")
    return device


CALLS = 20_000


def calls_of(make):
    """A step of nothing but one call of the CUDA runtime, many times; `make` gives what makes it."""
    def build(ctx):
        call, range_ = make(), range(ctx.size(CALLS, 10))

        def step(_i):
            for _ in range_:
                call()

        return step
    return build


def event_record():
    import torch
    return torch.cuda.Event().record


def stream_query():
    import torch
    return torch.cuda.current_stream().query


def is_capturing():
    import torch
    return torch._C._cuda_isCurrentStreamCapturing


def get_device():
    import torch
    return torch._C._cuda_getDevice


LOOPS = {"call_get_device": calls_of(get_device), "call_is_capturing": calls_of(is_capturing), "call_event_record": calls_of(event_record),
         "call_stream_query": calls_of(stream_query), "gpt_large": gpt_large, "gpt_small": gpt_small, "mlp_eager": mlp_eager, "mlp_graph": mlp_graph,
         "compiled": compiled, "ddp": ddp}


def profiled(kind):
    """torch.profiler over the whole run, as a user would leave it on; `none` and what is no name of one: nothing."""
    import torch

    kinds = {"cuda": [torch.profiler.ProfilerActivity.CUDA],
             "cpu+cuda": [torch.profiler.ProfilerActivity.CPU, torch.profiler.ProfilerActivity.CUDA]}
    return torch.profiler.profile(activities=kinds[kind]) if kind in kinds else None


def main():
    import torch
    from training import Context

    p = argparse.ArgumentParser(prog="turns")
    p.add_argument("--program", choices=[*LOOPS, "trainer"], required=True)
    p.add_argument("--answers", required=True)
    p.add_argument("--profiler", choices=("none", "cuda", "cpu+cuda"), default="none")
    p.add_argument("--gate", action="store_true", help="taken and not looked at: stdin is the gate")
    p.add_argument("--held", action="store_true", help="wait for a line on stdin before the first use of the GPU")
    p.add_argument("--device", default="cuda")
    p.add_argument("--tiny", action="store_true")
    a = p.parse_args()
    torch.manual_seed(20261120)
    with open(a.answers, "w") as answers:
        if a.held:
            if a.program == "trainer":
                import transformers  # noqa: F401
            answers.write(json.dumps({"held": True}) + "\n")
            answers.flush()
            if not sys.stdin.readline():
                return
        ctx = Context(join(a.device) if a.program == "ddp" else a.device, a.tiny)
        turns = Turns(ctx, answers, a.program in GIVE_BACK)
        profiler = profiled(a.profiler)
        if a.program == "trainer":
            if profiler is not None:
                profiler.start()
            trainer(ctx, turns)
        else:
            step, i = LOOPS[a.program](ctx), 0
            if profiler is not None:
                profiler.start()
            while turns.before():
                step(i)
                i += 1
    if profiler is not None:
        os._exit(0)  # what it has collected is nobody's, and takes it a minute to sort
    if a.program == "ddp":
        torch.distributed.destroy_process_group()


if __name__ == "__main__":
    main()
