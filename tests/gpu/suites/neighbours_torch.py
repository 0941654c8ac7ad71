# SPDX-License-Identifier: Apache-2.0
"""The ways in which torch.profiler is used, and what is judged of them beside counts: the kernels' total time, that the way was taken at all, and what we record
of the training around the profiles. Part of the suite `neighbours`."""

from check import pairing, victim
from check.plan import FAIL, INFO, NOT_RUN
from check.tracefile import Trace

# {part: (arguments of profiled_torch, environment)}. With TEARDOWN_CUPTI Kineto ends each profile
# with cuptiFinalize, in the next CUDA call's exit; without KINETO_LOG_LEVEL it would not say so.
# With KINETO_USE_DAEMON it initialises CUPTI when torch is imported, and asks a daemon (dynolog)
# for orders: there is none.
WAYS = {
    "torch": ((), victim.WHOLE),
    "torch_schedule": (("--schedule",), {}),
    "torch_daemon": ((), {"KINETO_USE_DAEMON": "1"}),
    # seconds behind each profile: whether CUPTI's clock stays wrong that it has been seen to give
    # there
    "torch_long": (("--times", "3", "--without", "800"), {**victim.WHOLE, "GAPPROBE_EXIT_MS": "60000"}),
    # a hundred times on and off, while our windows go on and off
    "torch_hundred": (("--times", "100", "--without", "60", "--operators"), {"GAPPROBE_WINDOW": "10/20", "GAPPROBE_EXIT_MS": "60000"}),
    "torch_teardown": (("--times", "3"), {"TEARDOWN_CUPTI": "1", "KINETO_LOG_LEVEL": "1"}),
}
TORN_DOWN = "teardownCupti complete"  # Kineto's word for it, on stderr
YIELDED = "another profiler held the GPU records"  # as the summary says it

# The same kernels in two processes, one after the other: those of a GPT took up to 0.2 % longer or
# less (`exactness:kernel_time`, H100). These are of 2 us each, and nothing holds the GPU's clock. A
# record too many or a wrong clock makes more of a difference.
KERNEL_TIME_LIMIT = 0.05


def judge_way(plan, suite, who, plain, ours):
    """Did Kineto do what the part is named for, in both runs? Without it the part shows nothing."""
    if who == "torch_teardown":
        found = [e.err.count(TORN_DOWN) for e in (plain, ours)]
        wanted, what = len(plain.truth["profiles"]), "tear-downs"
    elif who == "torch_daemon":
        found = [int(bool(e.truth.get("waits_for_daemon"))) for e in (plain, ours)]
        wanted, what = 1, "sockets for the daemon"
    else:
        return
    result = NOT_RUN if found[0] < wanted else found[0] == found[1]
    plan.row(suite, f"{who}: Kineto goes that way", result, f"{what}: {found[0]} without us, {found[1]} with", f"{wanted}, as without us")


def judge_kernel_time(plan, suite, who, plain, ours):
    """The profiles' total kernel time with us and without: medians over the profiles."""
    without, with_us = plain.truth.get("kernel_us") or (), ours.truth.get("kernel_us") or ()
    totals = [[sum(profile.values()) for profile in profiles] for profiles in (without, with_us)]
    if not all(totals) or not min(map(min, totals)):
        plan.row(suite, f"{who}: kernel time", FAIL, f"profiles without kernels: {totals}")
        return
    middle = [pairing.median(t) for t in totals]
    apart = middle[1] / middle[0] - 1

    def of(profiles, name):
        return pairing.median([p.get(name, 0) for p in profiles])

    most = max(without[0], key=lambda name: abs(of(with_us, name) - of(without, name)))
    plan.row(suite, f"{who}: kernel time", abs(apart) <= KERNEL_TIME_LIMIT,
             f"{apart * 100:+.2f} %: {middle[0]:.0f} us without us, {middle[1]:.0f} with; profiles {[[round(v) for v in t] for t in totals]}; "
             f"most apart {of(without, most):.0f} and {of(with_us, most):.0f} us of {most}", f"±{KERNEL_TIME_LIMIT:.0%}")


def recorded(ours):
    """Kernels in our trace of each stretch of training without the profiler."""
    path = ours.trace()
    if path is None:
        return None
    trace = Trace(path)
    return [sum(begin <= trace.base_ns + k.start < end for k in trace.kernels) for begin, end in ours.truth["trained_ns"]]


SLICES = 4
LONG_SLICES = 8  # of a stretch of more steps


def early(ours):
    """Of each stretch of training without the profiler, in SLICES parts (LONG_SLICES of a long one): (kernels that start before their launch begins as a share, by how much at most, us)."""
    path = ours.trace()
    if path is None:
        return None
    trace, found = Trace(path), []
    slices = SLICES if ours.truth["steps_without"] <= 100 else LONG_SLICES
    for begin, end in ours.truth["trained_ns"]:
        parts = [[] for _ in range(slices)]
        for k in trace.kernels:
            at, call = trace.base_ns + k.start, trace.launch_of.get(k.correlation)
            if call and begin <= at < end:
                parts[(at - begin) * slices // (end - begin)].append(call.start - k.start)
        found.append([(round(sum(d > 0 for d in p) / len(p), 3), round(max(p) / 1e3, 1)) if p else None for p in parts])
    return found


def judge_recorded(plan, suite, who, ours):
    """We record before, between and after the profiles; where the profiler tears CUPTI down, before the first one alone, and the rest is one span that is said not to
    be observed. (With a schedule two steps lie between two profiles, too few for us to come back.)"""
    if ours.trace() is None:
        ours.recover(plan)  # (a slow host had not written it within GAPPROBE_EXIT_MS; the line says so)
    found = recorded(ours)
    if found is None:
        plan.row(suite, f"{who}: recorded around the profiles", FAIL, "no trace")
        return
    of_stretches = early(ours)
    plan.detail(suite, f"{who} early", of_stretches)
    if who == "torch_hundred":
        some = sum(n > 0 for n in found)
        plan.row(suite, f"{who}: recorded around the profiles", some > len(found) // 2, f"{some} of {len(found)} stretches of {ours.truth['steps_without']} steps",
                 "more than half")
        return
    plan.row(suite, f"{who}: kernels before their launch", INFO, f"by stretches, in equal parts, as a share and by so many us at most: {of_stretches}")
    text = f"{found[0]} kernels before, {found[1:-1]} between, {found[-1]} after, of {ours.truth['steps_without']} steps each"
    if who != "torch_teardown":
        plan.row(suite, f"{who}: recorded around the profiles", min(found) > 0, text, "> 0 each")
        return
    stretches = ours.truth["trained_ns"]
    rest = stretches[-1][1] - stretches[1][0]
    unobserved = ((ours.summary() or {}).get("coverage") or {}).get("unobserved") or ()
    longest = max([u["to_ns"] - u["from_ns"] for u in unobserved if u["reason"] == YIELDED] or [0])
    plan.row(suite, f"{who}: recorded up to the first tear-down", found[0] > 0 and longest >= 0.95 * rest,
             f"{text}; {longest / 1e9:.1f} s are said to be the profiler's, of {rest / 1e9:.1f} s behind it", "> 0 before; behind it unobserved")
