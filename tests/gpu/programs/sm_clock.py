# SPDX-License-Identifier: Apache-2.0
"""The mean clock of the multiprocessors between two moments, by their own cycle counters: under a power cap it changes within milliseconds,
and one of NVML's readings a second is no mean (H200, 2026-11-29). Needs CuPy; `mean_mhz` needs nothing."""

import statistics

LEAST, MOST = 100, 3000  # MHz; anything else is no clock of a GPU
BLOCKS = 4  # for each multiprocessor
# A block stays for some 10 us, so that the next ones go to other multiprocessors.
KERNEL = """
extern "C" __global__ void sm_clock(long long* out) {
    unsigned int sm;
    long long ns, cycles = clock64();
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(ns));
    asm volatile("mov.u32 %0, %%smid;" : "=r"(sm));
    out[3 * blockIdx.x] = sm;
    out[3 * blockIdx.x + 1] = cycles;
    out[3 * blockIdx.x + 2] = ns;
    while (clock64() - cycles < 20000) {}
}
"""


def mean_mhz(before, after):
    """`before`, `after`: {multiprocessor: (cycles, ns)}; the median over those in both, None where it is no clock."""
    both = [(after[sm][0] - before[sm][0], after[sm][1] - before[sm][1]) for sm in before.keys() & after.keys()]
    rates = [1e3 * cycles / ns for cycles, ns in both if ns > 0]
    mhz = statistics.median(rates) if rates else 0.0
    return mhz if LEAST <= mhz <= MOST else None


class SmClock:
    """`begin()` and `end()` around what is measured, each with the GPU idle; then `mhz`, or `missing` says why there is none."""

    def __init__(self, multiprocessors):
        self.mhz = self.missing = None
        self.blocks, self.before = BLOCKS * multiprocessors, {}
        self._read()  # (compiles and loads it)

    def begin(self):
        self.before = self._read()

    def end(self):
        after = self._read()
        self.mhz = mean_mhz(self.before, after)
        if self.mhz is None and self.missing is None:
            self.missing = f"senseless: {sorted(self.before.items())[:1]} to {sorted(after.items())[:1]}"

    def _read(self):
        """{multiprocessor: (cycles, ns)}; {} where that cannot be had."""
        if self.missing:
            return {}
        try:
            import cupy

            out = cupy.empty(3 * self.blocks, dtype=cupy.int64)
            cupy.RawKernel(KERNEL, "sm_clock")((self.blocks,), (1,), (out,))
            return {sm: (cycles, ns) for sm, cycles, ns in cupy.asnumpy(out).reshape(-1, 3).tolist()}
        except Exception as e:  # (no CuPy, no compiler, no device of its kind: the caller goes by NVML)
            self.missing = f"{type(e).__name__}: {e}"[:200]
            return {}
