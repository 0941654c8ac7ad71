# SPDX-License-Identifier: Apache-2.0
"""Evaluation that fetches its predictions batch by batch for a metric in NumPy. Fixed: counted on the GPU, fetched once."""

import torch
from torchside import Heavy, Stem, Thin, main


def build(form, ctx):
    stem, head = Stem(ctx, 300, Thin), Heavy(ctx, ms=28)
    right_answers = torch.randint(0, 2, (1024,), device=ctx.device)[: head.rows.shape[0]]
    in_numpy = right_answers.cpu().numpy()
    hits, counted = [], torch.zeros((), dtype=torch.int64, device=ctx.device)

    def step(_i):
        predicted = (head.infer(stem.run())[: len(in_numpy)] > 0).to(torch.int64)
        if form == "slow":
            hits.append((predicted.cpu().numpy() == in_numpy).sum())  # SITE
        else:
            counted.add_((predicted == right_answers).sum())
        return predicted

    return step


if __name__ == "__main__":
    main(build, steps=45)
