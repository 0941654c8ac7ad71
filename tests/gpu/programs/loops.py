# SPDX-License-Identifier: Apache-2.0
"""The loops that turns.py, switched.py and free.py drive. What a program needs is imported by `import_for`, which does not touch the GPU."""

import importlib
import os
import tempfile


class Plain:
    """What a program without PyTorch gets in place of training.Context: each of its steps waits for what it computes, so the host's clock tells its time."""

    on_gpu = False

    def sync(self):
        pass


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


def trainer(ctx, asks):
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
            if not asks.before():
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


def reduce_overhead(ctx):
    """torch.compile with CUDA graphs."""
    import torch
    from mlp import Block
    from torch import nn
    model = torch.compile(nn.Sequential(*(Block(256) for _ in range(24))).to(ctx.device), mode="reduce-overhead")
    x = torch.randn(256, 256, device=ctx.device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True, capturable=True)

    def step(_i):
        torch.compiler.cudagraph_mark_step_begin()
        optimizer.zero_grad(set_to_none=True)
        model(x).square().mean().backward()
        optimizer.step()

    return step


def decode(ctx):
    """One token a step, of a small GPT with a cache of one length (attention of each new length is planned anew, for 40 ms); its token is read each step."""
    import torch
    from torch import nn
    width, layers, longest = 512, 12, 256
    kinds = {"device": ctx.device, "dtype": torch.bfloat16}
    blocks = nn.ModuleList(nn.ModuleDict({"qkv": nn.Linear(width, 3 * width), "out": nn.Linear(width, width), "up": nn.Linear(width, 4 * width),
                                          "down": nn.Linear(4 * width, width), "norm": nn.LayerNorm(width)}) for _ in range(layers)).to(**kinds)
    embedding, head = nn.Embedding(8192, width).to(**kinds), nn.Linear(width, 8192).to(**kinds)
    caches = [torch.zeros(2, 1, 8, longest, 64, **kinds) for _ in range(layers)]
    token = torch.zeros(1, 1, dtype=torch.long, device=ctx.device)

    @torch.no_grad()
    def step(i):
        nonlocal token
        at = i % longest
        h = embedding(token)
        for block, cache in zip(blocks, caches):
            q, k, v = block["qkv"](block["norm"](h)).view(1, 1, 3, 8, 64).permute(2, 0, 3, 1, 4)
            cache[0, :, :, at], cache[1, :, :, at] = k[:, :, 0], v[:, :, 0]
            mixed = nn.functional.scaled_dot_product_attention(q, cache[0], cache[1])
            h = h + block["out"](mixed.reshape(1, 1, width))
            h = h + block["down"](nn.functional.gelu(block["up"](h)))
        token = head(h).argmax(-1)
        token.item()

    return step


def rnn(ctx):
    """LSTM cells, a launch at a time."""
    import torch
    cell = torch.nn.LSTMCell(256, 256).to(ctx.device)
    x = torch.randn(32, 64, 256, device=ctx.device)
    optimizer = torch.optim.SGD(cell.parameters(), lr=1e-3)

    def step(_i):
        state = None
        for t in range(x.shape[0]):
            state = cell(x[t], state)
        loss = state[0].square().mean()
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        return loss.item()

    return step


def jax_steps(_ctx):
    """Twelve products and their gradients in one jit; its loss is read each step."""
    import jax
    import jax.numpy as jnp
    key = jax.random.PRNGKey(0)
    weights = [jax.random.normal(jax.random.fold_in(key, i), (1024, 1024)) * 0.03 for i in range(12)]
    x = jax.random.normal(key, (256, 1024))

    def loss(w):
        y = x
        for one in w:
            y = jnp.tanh(y @ one)
        return jnp.mean(y * y)

    @jax.jit
    def once(w):
        value, slope = jax.value_and_grad(loss)(w)
        return [a - 0.01 * b for a, b in zip(w, slope)], value

    def step(_i):
        nonlocal weights
        weights, value = once(weights)
        return float(value)

    return step


def cupy_steps(_ctx):
    """Forty times four small kernels; a value is read each step."""
    import cupy
    a = cupy.random.rand(512, 512, dtype=cupy.float32)

    def step(_i):
        b = a
        for _ in range(40):
            b = cupy.tanh(b * 1.01 + 0.1)
        return float(b[0, 0])

    return step


# Loops of PyTorch's, and those without it: name -> what builds a step(i).
TORCH = {"call_get_device": calls_of(get_device), "call_is_capturing": calls_of(is_capturing), "call_event_record": calls_of(event_record),
         "call_stream_query": calls_of(stream_query), "gpt_large": gpt_large, "gpt_small": gpt_small, "mlp_eager": mlp_eager, "mlp_graph": mlp_graph,
         "compiled": compiled, "ddp": ddp, "reduce_overhead": reduce_overhead, "decode": decode, "rnn": rnn}
WITHOUT_TORCH = {"jax": jax_steps, "jax_graphs": jax_steps, "cupy": cupy_steps}
WITH_TORCH = (*TORCH, "trainer")
PROGRAMS = (*WITH_TORCH, *WITHOUT_TORCH)


def import_for(program):
    """Import what a program needs; its GPU is not touched."""
    if program in ("jax", "jax_graphs"):
        os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
    if program == "jax":  # launch by launch
        os.environ["XLA_FLAGS"] = os.environ.get("XLA_FLAGS", "") + " --xla_gpu_enable_command_buffer="
    for name in {"jax": ("jax",), "jax_graphs": ("jax",), "cupy": ("cupy",), "trainer": ("training", "transformers")}.get(program, ("training",)):
        importlib.import_module(name)


def context(program, device="cuda", tiny=False):
    """Where it runs."""
    if program in WITHOUT_TORCH:
        return Plain()
    import torch
    from training import Context
    torch.manual_seed(20261120)
    return Context(join(device) if program == "ddp" else device, tiny)


def play(program, ctx, asks, began=None):
    """Steps for as long as `asks.before()` says so before each; `began` is called before the first."""
    step = None if program == "trainer" else {**TORCH, **WITHOUT_TORCH}[program](ctx)
    if began is not None:
        began()
    if step is None:
        trainer(ctx, asks)
        return
    i = 0
    while asks.before():
        step(i)
        i += 1
