# SPDX-License-Identifier: Apache-2.0
"""`print(loss)` in every step. Fixed: the losses are kept on the GPU and printed every 100 steps."""

from torchside import Heavy, Stem, main


def build(form, ctx):
    stem, head = Stem(ctx, 80), Heavy(ctx, ms=17)
    kept = []

    def step(_i):
        loss = head.train(stem.run())
        if form == "slow":
            print(loss)  # SITE
        else:
            kept.append(loss)
            if len(kept) == 100:
                print(*map(float, kept))
                kept.clear()
        return loss

    return step


if __name__ == "__main__":
    main(build, steps=45)
