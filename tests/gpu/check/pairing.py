# SPDX-License-Identifier: Apache-2.0
"""Statistics for paired blocks: medians of pair ratios and differences with a bootstrap interval.

The machine's host speed drifts by tens of percent; only neighbours in time can be compared (shared/H200.md).
"""

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
