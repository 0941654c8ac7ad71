# SPDX-License-Identifier: Apache-2.0
"""Models whose kernels are to be told by line and module: whose.py MODEL STEPS [--reference].

Plain, it trains. With --reference it says for each kernel of one step what it is of, by PyTorch's own means: each
function of torch's that is called gets a range with the program's line and the path by named_modules(); a kernel of a
backward pass goes by the sequence number of its autograd node to the operator that made the node (torch.profiler).
A model with _compiled behind its name goes through torch.compile; of its kernels Inductor's own code says what they are of.
One with _graph trains by a CUDA graph of a whole step; what its kernels are of says the same step without the graph.
`trainer` is a Llama of transformers under its Trainer: there a kernel's line is the one of the innermost module that has
a line outside of PyTorch, the program's before its package's. `checkpointed` has modules of PyTorch's that are computed again in
the backward pass: a kernel of that is of its own module and of the line that made the node.
The last line on stdout is one JSON object."""

import argparse
import contextlib
import json
import os
import pathlib
import re
import sys
import tempfile

import torch
from torch import nn
from torch.nn import functional as F
from torch.overrides import TorchFunctionMode
from torch.utils.checkpoint import checkpoint

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import gpt

MARK = "whose|"


class Context:
    device = torch.device("cuda")
    tiny = False

    @staticmethod
    def size(real, tiny):
        return real


class Residual(nn.Module):
    def __init__(self, channels, stride=1):
        super().__init__()
        out = channels * stride
        self.conv1, self.bn1 = nn.Conv2d(channels, out, 3, stride, 1, bias=False), nn.BatchNorm2d(out)
        self.conv2, self.bn2 = nn.Conv2d(out, out, 3, 1, 1, bias=False), nn.BatchNorm2d(out)
        self.shortcut = nn.Sequential(nn.Conv2d(channels, out, 1, stride, bias=False), nn.BatchNorm2d(out)) if stride > 1 else None

    def forward(self, x):
        y = F.relu(self.bn1(self.conv1(x)))
        y = self.bn2(self.conv2(y))
        if self.shortcut is not None:
            x = self.shortcut(x)
        return F.relu(x + y)


class ResNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, 64, 7, 2, 3, bias=False), nn.BatchNorm2d(64), nn.ReLU(), nn.MaxPool2d(3, 2, 1))
        self.stages = nn.Sequential(Residual(64), Residual(64), Residual(64, 2), Residual(128), Residual(128, 2), Residual(256))
        self.head = nn.Linear(256, 1000)

    def forward(self, x, y):
        x = self.stages(self.stem(x))
        logits = self.head(x.mean((2, 3)))
        return F.cross_entropy(logits, y)


class Level(nn.Module):
    def __init__(self, channels, inner):
        super().__init__()
        self.norm, self.conv = nn.GroupNorm(8, channels), nn.Conv2d(channels, channels, 3, padding=1)
        if inner is None:
            self.down = None
            self.attention = nn.MultiheadAttention(channels, 4, batch_first=True)
            return
        self.down, self.inner = nn.Conv2d(channels, 2 * channels, 2, 2), inner
        self.up, self.mix = nn.ConvTranspose2d(2 * channels, channels, 2, 2), nn.Conv2d(2 * channels, channels, 1)

    def forward(self, x):
        x = x + self.conv(F.silu(self.norm(x)))
        if self.down is None:
            flat = x.flatten(2).transpose(1, 2)
            seen, _ = self.attention(flat, flat, flat, need_weights=False)
            return x + seen.transpose(1, 2).view_as(x)
        below = self.up(self.inner(self.down(x)))
        return self.mix(torch.cat((x, below), 1))


class UNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.enter, self.leave = nn.Conv2d(3, 64, 3, padding=1), nn.Conv2d(64, 3, 3, padding=1)
        self.level = Level(64, Level(128, Level(256, None)))

    def forward(self, x, y):
        return F.mse_loss(self.leave(self.level(self.enter(x))), y)


class Checkpointed(nn.Module):
    def __init__(self):
        super().__init__()
        self.blocks = nn.ModuleList(nn.Sequential(nn.LayerNorm(1024), nn.Linear(1024, 4096), nn.GELU(), nn.Linear(4096, 1024)) for _ in range(4))
        self.head = nn.Linear(1024, 64)

    def forward(self, x, y):
        for block in self.blocks:
            x = x + checkpoint(block, x, use_reentrant=False)
        return F.mse_loss(self.head(x), y)


def build(name, is_reference):
    """(model, train): the model whose modules are named; train(steps, last) does so many, the last within `last`."""
    torch.manual_seed(0)
    name, _, form = name.partition("_")
    device = Context.device
    if name == "gpt":
        model = gpt.GPT(32768, 512, 6, 8, 256).to(device, torch.bfloat16)
        data = torch.randint(0, 32768, (8, 257), device=device)
        inputs = (data[:, :-1], data[:, 1:])
    elif name == "resnet":
        model, inputs = ResNet().to(device), (torch.randn(32, 3, 224, 224, device=device), torch.randint(0, 1000, (32,), device=device))
    elif name == "unet":
        model, inputs = UNet().to(device), tuple(torch.randn(8, 3, 64, 64, device=device) for _ in range(2))
    elif name == "checkpointed":
        model, inputs = Checkpointed().to(device, torch.bfloat16), tuple(torch.randn(4096, n, device=device, dtype=torch.bfloat16) for n in (1024, 64))
    elif name == "trainer":
        return of_trainer()
    else:
        sys.exit(f"whose: no model {name}")
    if form == "compiled":
        model = torch.compile(model)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, capturable=form == "graph")

    def step():
        optimizer.zero_grad(set_to_none=True)
        loss = model(*inputs)
        loss.backward()
        optimizer.step()

    if form == "graph" and not is_reference:
        step = captured(step)

    def train(steps, last):
        for n in range(steps):
            with last if n == steps - 1 else contextlib.nullcontext():
                step()
        torch.cuda.synchronize()

    return model, train


def of_trainer():
    """A Llama under transformers' Trainer, in bfloat16 by autocast."""
    import transformers

    class Last(transformers.TrainerCallback):
        def __init__(self, step, around):
            self.step, self.around = step, around

        def on_step_begin(self, _options, state, _control, **_more):
            if state.global_step == self.step:
                self.around.__enter__()

        def on_step_end(self, _options, state, _control, **_more):
            if state.global_step == self.step + 1:
                self.around.__exit__(None, None, None)

    device = Context.device
    config = transformers.LlamaConfig(vocab_size=Context.size(32768, 64), hidden_size=Context.size(512, 32), intermediate_size=Context.size(1536, 64),
                                      num_hidden_layers=Context.size(6, 2), num_attention_heads=8, max_position_embeddings=256, use_cache=False)
    model = transformers.LlamaForCausalLM(config).to(device)
    words = torch.randint(0, config.vocab_size, (Context.size(8, 2), Context.size(256, 16)))
    data = [{"input_ids": row, "labels": row} for row in words]

    def train(steps, last):
        with tempfile.TemporaryDirectory() as folder:
            options = transformers.TrainingArguments(folder, max_steps=steps, per_device_train_batch_size=len(data), bf16=True, report_to=[],
                                                     save_strategy="no", disable_tqdm=True, use_cpu=device.type == "cpu")
            transformers.Trainer(model, options, train_dataset=data, callbacks=[Last(steps - 1, last)]).train()

    return model, train


def line_of(frame):
    """See the file's head."""
    package = None
    while frame is not None:
        path = frame.f_code.co_filename
        if "-packages/torch/" in path:
            if package and frame.f_code.co_name == "_call_impl":
                return package
        elif frame.f_code is not Marking.__torch_function__.__code__ and "/contextlib.py" not in path:
            line = f"{os.path.basename(path)}:{frame.f_lineno}"
            if "-packages/" not in path:
                return line
            package = package or line
        frame = frame.f_back
    return package


class Marking(TorchFunctionMode):
    """A range around each function of torch's that the program, or a module of torch's for it, calls."""

    def __init__(self, model):
        super().__init__()
        self.names = {id(m): (name, type(m).__name__) for name, m in model.named_modules()}
        self.called = []
        nn.modules.module.register_module_forward_pre_hook(self.enter)
        nn.modules.module.register_module_forward_hook(self.leave, always_call=True)  # (a checkpoint ends by an exception)

    def enter(self, module, _inputs):
        if not self.called:
            self.is_within = torch._C._len_torch_function_stack() == 0  # loss.backward(), of which it is told no more: a checkpoint
            if self.is_within:
                self.__enter__()
        self.called.append(self.names.get(id(module)))

    def leave(self, _module, _inputs, _output):
        self.called.pop()
        if self.is_within and not self.called:
            self.__exit__(None, None, None)

    def __torch_function__(self, function, types, args=(), kwargs=None):
        module = next((m for m in reversed(self.called) if m is not None), ("", "-"))
        line = line_of(sys._getframe(1))
        with torch.profiler.record_function(f"{MARK}{module[0]}|{module[1]}|{line or ''}"):
            return function(*args, **(kwargs or {}))


def kernels(events):
    """What each kernel of a trace is of, in the order of their launches: [name, path, class, line, pass, us, node,
    operator]."""
    launches, by_thread, work, operators = {}, {}, [], {}
    for e in events:
        category, args = e.get("cat"), e.get("args") or {}
        if category in ("cuda_runtime", "cuda_driver"):
            launches[args.get("correlation")] = e
        elif category == "kernel":
            work.append(e)
        elif category in ("cpu_op", "user_annotation") and e.get("ph") == "X":
            by_thread.setdefault(e["tid"], []).append(e)
    for thread in by_thread.values():
        thread.sort(key=lambda e: (e["ts"], -e["dur"]))

    def around(thread, at):
        return [e for e in by_thread.get(thread, []) if e["ts"] <= at <= e["ts"] + e["dur"]]

    for e in sorted((e for t in by_thread.values() for e in t), key=lambda e: e["ts"]):
        args = e.get("args") or {}
        if "Sequence number" in args and not args.get("Fwd thread id") and e["tid"] == e["pid"]:  # (numbers are a thread's own)
            operators[args["Sequence number"]] = e  # the last to begin with it made the node
    found = []
    for kernel in work:
        launch = launches.get(kernel["args"]["correlation"])
        if launch is None:
            continue
        at, thread, of = launch["ts"], launch["tid"], "forward"
        stack = around(thread, at)
        aten = next((e["name"] for e in stack if e["name"].startswith("aten::")), "")
        node = next((e for e in reversed(stack) if e["name"].startswith("autograd::engine::evaluate_function")), None)
        kind = ""
        if node is not None:
            of, kind = "backward", node["name"].split(": ")[-1]
            operator = operators.get((node.get("args") or {}).get("Sequence number"))
            again = [e for e in stack[stack.index(node):] if e["name"].startswith(MARK)]
            stack = (around(operator["tid"], operator["ts"]) if operator else []) + again
        marks = [e["name"][len(MARK):].split("|") for e in stack if e["name"].startswith(MARK)] or [["", "-", ""]]
        path, module, _ = marks[-1]
        line = next((m[2] for m in reversed(marks) if m[2]), "")
        found.append((at, [kernel["name"], path, module, line, of, round(kernel["dur"], 3), kind, aten]))
    return [row for _, row in sorted(found, key=lambda f: f[0])]


def generated(cache):
    """By the names of Triton's kernels what Inductor's code says of each of their calls: operators, nodes of the source."""
    found, said = {}, None
    for path in sorted(pathlib.Path(cache).rglob("*.py")):
        for line in path.read_text(errors="replace").splitlines():
            comment = re.search(r"# (?:\w+ )*Source Nodes: \[(.*?)\], Original ATen: \[(.*?)\]", line)
            run = re.match(r"\s+(triton_\w+)\.run\(", line)
            if comment:
                said = (comment[2].replace("aten.", "aten::").replace("prims.", "prims::").replace(", ", "+"), comment[1])
            elif run and said:
                found.setdefault(run[1], []).append(said)
    return found


def told(rows, said):
    """Rows with what the code says: calls of one kernel come in its order. Of an operator called by its schema the code
    names what the profiler saw, and its nodes, which are not held against anything."""
    for row in rows:
        calls = said.get(row[0])
        if calls:
            calls.append(calls.pop(0))
            yield [*row[:7], *calls[-1]]
        else:
            yield row


@contextlib.contextmanager
def profiled(marking, found):
    """The kernels of what is done in it are put into `found`."""
    activities = [torch.profiler.ProfilerActivity.CPU, torch.profiler.ProfilerActivity.CUDA]
    torch.cuda.synchronize()
    with torch.profiler.profile(activities=activities) as profile:
        with marking:
            yield
        torch.cuda.synchronize()
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "trace.json")
        profile.export_chrome_trace(path)
        found.extend(kernels(json.load(open(path))["traceEvents"]))


def reference(model, train):
    is_compiled, found = hasattr(model, "_orig_mod"), []
    if is_compiled:
        marking, cache = contextlib.nullcontext(), tempfile.mkdtemp()
        os.environ["TORCHINDUCTOR_CACHE_DIR"] = cache
    else:
        marking = Marking(model)
    train(4, profiled(marking, found))
    return list(told(found, generated(cache))) if is_compiled else found


def captured(step):
    """A step that plays the graph of `step`."""
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(5):
            step()
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        step()
    return graph.replay


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("model")
    parser.add_argument("steps", type=int)
    parser.add_argument("--reference", action="store_true")
    options = parser.parse_args()
    model, train = build(options.model, options.reference)
    if options.reference:
        return print(json.dumps({"kernels": reference(model, train)}))
    train(options.steps, contextlib.nullcontext())
    return print(json.dumps({"true_steps": options.steps}))


if __name__ == "__main__":
    main()
