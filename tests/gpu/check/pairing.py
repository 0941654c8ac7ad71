# SPDX-License-Identifier: Apache-2.0
"""Statistics for paired blocks: medians of pair ratios and differences with a bootstrap interval, and the same over several processes of a kind.

The machine's host speed drifts by tens of percent; only neighbours in time can be compared.
"""

import collections
import math
import random


def median(values):
    """Median of a non-empty list."""
    v = sorted(values)
    n = len(v)
    return v[n // 2] if n % 2 else (v[n // 2 - 1] + v[n // 2]) / 2


def quantile(values, q):
    """The `q` quantile (0 to 1) of a non-empty list, interpolated."""
    v = sorted(values)
    at = q * (len(v) - 1)
    low = int(at)
    high = min(low + 1, len(v) - 1)
    return v[low] + (v[high] - v[low]) * (at - low)


def interval(values, statistic=median, rounds=2000, seed=1):
    """(statistic, low, high): 95 % percentile bootstrap over resampled `values`."""
    draw = random.Random(seed)
    n = len(values)
    found = sorted(statistic([values[draw.randrange(n)] for _ in range(n)]) for _ in range(rounds))
    return statistic(values), found[int(0.025 * rounds)], found[int(0.975 * rounds) - 1]


def win(pairs, rounds=2000):
    """Share of time the second of each pair saves over the first: (median, low, high)."""
    return interval([1 - b / a for a, b in pairs], rounds=rounds)


# Student's t, 97.5 %, by degrees of freedom from 1 on; 1.96 + 2.6 / n further on is within 0.01 of
# it.
STUDENT = (12.71, 4.30, 3.18, 2.78, 2.57, 2.45, 2.36, 2.31, 2.26, 2.23)
NORMAL = 1.96


def student(freedom):
    """How many times a normal distribution's interval one from so few values is wide; 1 where there is none to know it by."""
    if freedom < 1:
        return 1.0
    return (STUDENT[freedom - 1] if freedom <= len(STUDENT) else NORMAL + 2.6 / freedom) / NORMAL


def mean(values):
    return sum(values) / len(values)


def sd(values):
    """Standard deviation of two values or more."""
    middle = mean(values)
    return math.sqrt(sum((v - middle) ** 2 for v in values) / (len(values) - 1))


# How blocks are compared: what stands between the two kinds' blocks of a round, a block against
# that, and one kind's mean against the other's.
By = collections.namedtuple("By", ("level", "against", "effect"))
SHARE = By(lambda a, b: math.sqrt(a * b), lambda value, level: value / level, lambda a, b: a / b - 1)  # 0.1: 10 % more
DIFFERENCE = By(lambda a, b: (a + b) / 2, lambda value, level: value - level, lambda a, b: a - b)


def lower_median(values):
    """The middle one, of an even number the lower of the two."""
    return sorted(values)[(len(values) - 1) // 2]


def ends(found, middle=None, times=1.0):
    """Ends of a 95 % interval: of what resampling gave, so many times as far from the middle."""
    found = sorted(found)
    low, high = found[int(0.025 * len(found))], found[int(0.975 * len(found)) - 1]
    return (low, high) if middle is None else (middle - times * (middle - low), middle + times * (high - middle))


def drawn(draw, count):
    """Processes for one resample. One fewer than there are: n of n would make intervals sqrt(n / (n - 1)) too narrow, which is 15 % for four."""
    return [draw.randrange(count) for _ in range(max(count - 1, 1))]


QUIET = 0.1  # of a process's blocks: those in which the host did not stand still


def quiet(values):
    """What a process's quietest blocks take: their lowest tenth. Stalls make blocks longer, never shorter; of four equal processes in eager PyTorch this differed by
    0.5 to 1.3 % (SD, H100, 2026-11-26), their medians by 2.3 to 3.5."""
    return quantile(values, QUIET)


def two_level(mine, theirs, by, draws=1000, seed=1, pick=median):
    """What processes of one kind have more than those of another: ((middle, low, high), (low, high) of the processes alone, or None where
    there is one of each kind). `mine` and `theirs` hold a list a process, a step time a round; `by` is SHARE or DIFFERENCE.

    The middle: each process's median over the rounds, of its time against its round's (between the two kinds' lower medians), then the mean over
    the processes of a kind. Not the median over the rounds of the ratio of means: a host that stalls 0.7 times a second is in one of eight
    blocks nearly each round, so that the mean of four is off nearly each time; simulated, that scatters 2 to 4 times as much where processes and blocks
    are alike else, and as much where they are not. Where there is one process of each kind, both are the median of the ratios.

    The interval: percentile bootstrap over processes and rounds at once, which counts the rounds' noise twice where there are several processes (it is
    in their own differences), so it is rather too wide; but at least what the processes alone give, widened as Student's t is for so few. Of 1,200
    simulated runs it held the truth in 89 % (two processes a kind), 93 (three) and 94 (four) where processes differ by 3 % and their blocks by 1, and
    in 96 to 100 % where blocks differ by more than processes; with one process a kind in 26 to 92 %.

    `pick`: what stands for a process; where it is not the median blocks are not held against their round's, which a stall may have lengthened."""
    rounds = range(len(theirs[0]))
    sides = [mine, theirs]
    if pick is median:
        levels = [by.level(lower_median([p[r] for p in mine]), lower_median([p[r] for p in theirs])) for r in rounds]
        sides = [[[by.against(p[r], levels[r]) for r in rounds] for p in side] for side in sides]
    whole = [[pick(p) for p in side] for side in sides]
    draw = random.Random(seed)
    middle = by.effect(*(mean(side) for side in whole))

    def resampled():
        rows = [draw.randrange(len(rounds)) for _ in rounds]
        return by.effect(*(mean([pick([side[p][r] for r in rows]) for p in drawn(draw, len(side))]) for side in sides))

    low, high = ends([resampled() for _ in range(draws)])
    freedom = len(mine) + len(theirs) - 2
    if not freedom:
        return (middle, low, high), None
    found = [by.effect(*(mean([side[p] for p in drawn(draw, len(side))]) for side in whole)) for _ in range(draws)]
    alone = ends(found, middle, student(freedom))
    return (middle, min(low, alone[0]), max(high, alone[1])), alone


def weighed_quantile(ordered, weights, q):
    """As `quantile`, of values that count several times: `ordered` holds (value, process, round), largest first, each counted
    `weights[process][round]` times. Quick for a `q` near 1."""
    count = sum(weights[p][r] for _, p, r in ordered)
    at = q * (count - 1)
    from_top = count - 1 - int(at)  # the lower of its two neighbours has so many above it
    above, upper = 0, None
    for value, p, r in ordered:
        above += weights[p][r]
        if upper is None and above >= from_top:
            upper = value
        if above > from_top:
            return value + ((upper if from_top else value) - value) * (at - int(at))
    raise ValueError("nothing to count")


def two_level_quantile(mine, theirs, q, draws=300, seed=1):
    """The same for a quantile of all steps of a kind, as a share: (middle, low, high). `mine` and `theirs` hold a list a process, a list of step times
    a round."""
    rounds = len(theirs[0])
    pools = [sorted(((t, p, r) for p, process in enumerate(side) for r, steps in enumerate(process) for t in steps), reverse=True) for side in (mine, theirs)]
    draw = random.Random(seed)

    def effect(picked, rows):
        a, b = (weighed_quantile(pool, [[n * m for m in rows] for n in side], q) for pool, side in zip(pools, picked))
        return a / b - 1

    def counts(values, size):
        found = [0] * size
        for v in values:
            found[v] += 1
        return found

    found = []
    for _ in range(draws):
        rows = counts([draw.randrange(rounds) for _ in range(rounds)], rounds)
        found.append(effect([counts(drawn(draw, len(side)), len(side)) for side in (mine, theirs)], rows))
    return (effect([[1] * len(side) for side in (mine, theirs)], [1] * rounds), *ends(found))


def spread(processes, draws=200, seed=1):
    """What equal processes differ by: {"sd", "half_range": of each one's median over the rounds, as a share of their mean, "noise": the SD that the
    rounds' noise alone would make}. `processes` holds a list each, a step time a round; two of them or more."""
    rounds = range(len(processes[0]))
    levels = [lower_median([p[r] for p in processes]) for r in rounds]
    against = [[p[r] / levels[r] for r in rounds] for p in processes]
    found = [median(p) for p in against]
    draw, noise = random.Random(seed), []
    for p in against:
        noise.append(sd([median([p[draw.randrange(len(rounds))] for _ in rounds]) for _ in range(draws)]))
    middle = mean(found)
    return {"sd": sd(found) / middle, "half_range": (max(found) - min(found)) / 2 / middle, "noise": math.sqrt(mean([n * n for n in noise])) / middle}
