# SPDX-License-Identifier: Apache-2.0
"""Loops whose steps are hard to find from their launches alone, marks hidden. --shape:

  layers      12 equal layers: the layer is a period too, and not the step
  accumulate  gradients of 4 micro-batches an optimizer step
  evaluate    an evaluation of 10 batches every 50 steps
  generate    generation with changing lengths: no optimizer; a request or a token may be called the step
  unstable    operations drawn at random: there is no step to find
"""

import json
import random
import time

import torch
from gpt import GPT
from training import Context, Marks, arguments, pass_gate

SHAPES = ("layers", "accumulate", "evaluate", "generate", "unstable")


def trainer(ctx, length=256, batch=8):
    vocabulary = ctx.size(4096, 64)
    model = GPT(vocabulary, ctx.size(512, 32), 12, ctx.size(8, 2), length).to(ctx.device, torch.bfloat16)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
    data = torch.randint(0, vocabulary, (8, ctx.size(batch, 2), ctx.size(length, 16) + 1), device=ctx.device)
    return model, optimizer, data


def loss_of(model, batch):
    return model(batch[:, :-1], batch[:, 1:])


def layers(ctx, marks, n):
    model, optimizer, data = trainer(ctx)
    for i in range(n):
        marks.step()
        optimizer.zero_grad(set_to_none=True)
        loss_of(model, data[i % 8]).backward()
        optimizer.step()
    return {"true_steps": n}


def accumulate(ctx, marks, n):
    model, optimizer, data = trainer(ctx, batch=4)
    for i in range(n):
        marks.step()
        optimizer.zero_grad(set_to_none=True)
        for k in range(4):
            (loss_of(model, data[(i + k) % 8]) / 4).backward()
        optimizer.step()
    return {"true_steps": n}


def evaluate(ctx, marks, n):
    model, optimizer, data = trainer(ctx)
    for i in range(n):
        marks.step()
        optimizer.zero_grad(set_to_none=True)
        loss_of(model, data[i % 8]).backward()
        optimizer.step()
        if i % 50 == 49:
            with torch.no_grad():
                sum(loss_of(model, data[k % 8]).item() for k in range(10))
    return {"true_steps": n}


def generate(ctx, marks, n):
    """Greedy decoding with a key-value cache; prompts of 16 to 64 tokens, 10 to 40 new ones."""
    model, _, _ = trainer(ctx)
    draw, tokens = random.Random(7), 0
    with torch.no_grad():
        for _ in range(n):
            marks.step()
            new, prompt = draw.randrange(10, 41), draw.randrange(16, 65)
            ids = torch.randint(0, 64, (1, ctx.size(prompt, 8)), device=ctx.device)
            cache = [None] * len(model.blocks)
            position = 0
            for _ in range(new):
                x = model.tokens(ids) + model.positions.weight[position % 128: position % 128 + ids.shape[1]]
                position += ids.shape[1]
                for k, block in enumerate(model.blocks):
                    b, t, w = x.shape
                    q, key, v = block.qkv(block.ln1(x)).view(b, t, 3, block.heads, w // block.heads).permute(2, 0, 3, 1, 4)
                    if cache[k] is not None:
                        key, v = torch.cat((cache[k][0], key), 2), torch.cat((cache[k][1], v), 2)
                    cache[k] = key, v
                    y = torch.nn.functional.scaled_dot_product_attention(q, key, v, is_causal=t > 1)
                    x = x + block.out(y.transpose(1, 2).reshape(b, t, w))
                    x = x + block.down(torch.nn.functional.gelu(block.up(block.ln2(x))))
                ids = model.head(model.norm(x[:, -1:])).argmax(-1)
                tokens += 1
                if ids.item() < 0:
                    break
    return {"true_steps": n, "tokens": tokens}


def unstable(ctx, marks, n):
    draw = random.Random(7)
    sizes = (64, 96, 128, 200, 256, 300, 512, 777)
    kept = {s: torch.randn(s, s, device=ctx.device) for s in sizes}
    for _ in range(n):
        for _ in range(draw.randrange(5, 80)):
            s = draw.choice(sizes)
            x = kept[s]
            kind = draw.randrange(8)
            if kind == 0:
                x = x @ x
            elif kind == 1:
                x = torch.softmax(x, -1)
            elif kind == 2:
                x = torch.relu(x)
            elif kind == 3:
                x = x.sum(draw.randrange(2), keepdim=True).expand(s, s).contiguous()
            elif kind == 4:
                x = x.t().contiguous()
            elif kind == 5:
                x = torch.cumsum(x, 0)
            elif kind == 6:
                x = x.sort(-1).values
            else:
                x = torch.sin(x) + 1
            kept[s] = x / x.abs().amax().clamp(min=1)
    return {"true_steps": None}


STEPS = {"layers": 250, "accumulate": 80, "evaluate": 250, "generate": 25, "unstable": 150}


def main():
    a = arguments("shapes", lambda p: p.add_argument("--shape", choices=SHAPES, required=True))
    pass_gate(a)
    torch.manual_seed(20261120)
    ctx = Context(a.device, a.tiny)
    began = time.time()
    truth = globals()[a.shape](ctx, Marks(a.marks), a.steps or STEPS[a.shape])
    ctx.sync()
    truth.update(program="shapes", shape=a.shape, marks=a.marks, ran_s=time.time() - began)
    print(json.dumps(truth), flush=True)


if __name__ == "__main__":
    main()
