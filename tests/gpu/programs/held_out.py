# SPDX-License-Identifier: Apache-2.0
"""Programs that were written after the figures behind the promises, and are no part of them: held_out.py NAME slow|fixed [--tiny]. Models of
transformers' as people train them, each with one cause (odd_rows: with none); prints the step time that it measures itself. Run by hand under
gapprobe; what was said of them is in docs/kernels.md. Needs transformers."""

import json
import sys
import time

import torch
import transformers
from torch import nn
from torch.nn import functional as F

name, form = sys.argv[1:3]
tiny = "--tiny" in sys.argv
device = "cpu" if tiny else "cuda"
slow = form == "slow"
torch.manual_seed(1)


def sized(real, small):
    return small if tiny else real


def llama(dtype, attention="sdpa", vocab=32000, layers=4):
    config = transformers.LlamaConfig(vocab_size=sized(vocab, vocab % 97 + 64), hidden_size=sized(2048, 32), intermediate_size=sized(5504, 64), num_hidden_layers=sized(layers, 2),
                                      num_attention_heads=sized(16, 4), max_position_embeddings=2048, use_cache=False, attn_implementation=attention)
    return transformers.LlamaForCausalLM(config).to(device, dtype)


def lm(model, batch, length, vocab=32000):
    words = torch.randint(0, sized(vocab, 64), (sized(batch, 2), sized(length, 16)), device=device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-5, **({} if tiny else {"fused": True}))

    def step():
        optimizer.zero_grad(set_to_none=True)
        model(input_ids=words, labels=words).loss.backward()
        optimizer.step()

    return step


def fp32():  # full precision, TF32 off against on
    torch.backends.cuda.matmul.allow_tf32 = not slow
    return lm(llama(torch.float32), 4, 512)


def eager_attention():
    return lm(llama(torch.bfloat16, "eager" if slow else "sdpa"), 4, 2048)


def gpt2_vocabulary():
    vocab = 50257 if slow else 50304
    config = transformers.GPT2Config(vocab_size=sized(vocab, 97), n_embd=sized(1024, 32), n_layer=sized(4, 2), n_head=sized(16, 4), n_positions=1024, use_cache=False)
    return lm(transformers.GPT2LMHeadModel(config).to(device, torch.bfloat16), 16, 1024, 50257)


def norms():  # eager against compiled
    model = llama(torch.bfloat16, layers=6)
    return lm(model if slow or tiny else torch.compile(model), 8, 1024)


def checkpointed():
    model = llama(torch.bfloat16, layers=6)
    if slow:
        model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
    model.train()
    return lm(model, 8, 1024)


class Tower(nn.Module):
    """A video model's 3-d convolutions, in float32."""

    def __init__(self, channels):
        super().__init__()
        self.blocks = nn.ModuleList(nn.Sequential(nn.Conv3d(channels, channels, 3, padding=1), nn.GELU()) for _ in range(4))

    def forward(self, x):
        for block in self.blocks:
            x = x + block(x)
        return x


def video():
    torch.backends.cudnn.allow_tf32 = not slow
    model = Tower(sized(128, 4)).to(device)
    x = torch.randn(sized(4, 1), sized(128, 4), 8, sized(56, 8), sized(56, 8), device=device)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)

    def step():
        optimizer.zero_grad(set_to_none=True)
        model(x).square().mean().backward()
        optimizer.step()

    return step


class Mixer(nn.Module):
    """Products of an odd width."""

    def __init__(self, width):
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(width, width) for _ in range(6))

    def forward(self, x):
        for layer in self.layers:
            x = F.gelu(layer(x))
        return x


def odd_rows():  # the batch's rows are odd, not the widths: a healthy one either way
    model = Mixer(sized(4096, 32)).to(device, torch.bfloat16)
    x = torch.randn(sized(8191 if slow else 8192, 7), sized(4096, 32), device=device, dtype=torch.bfloat16)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)

    def step():
        optimizer.zero_grad(set_to_none=True)
        model(x).square().mean().backward()
        optimizer.step()

    return step


step = globals()[name]()
for _ in range(3 if tiny else 12):
    step()
if tiny:
    print(json.dumps({"ok": name}))
    sys.exit()
torch.cuda.synchronize()
began, n = time.perf_counter(), 0
while time.perf_counter() - began < 3:
    for _ in range(5):
        step()
    torch.cuda.synchronize()
    n += 5
print(json.dumps({"name": name, "form": form, "ms": (time.perf_counter() - began) / n * 1e3, "steps": n}))
