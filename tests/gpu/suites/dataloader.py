# SPDX-License-Identifier: Apache-2.0
"""DataLoader workers, forked and spawned: no file, no word, no hang of theirs."""

from check import victim
from check.plan import FAIL, NOT_RUN

NAME = "dataloader"
ABOUT = "fork and spawn workers under the preload (about 30 s)"

LATE_S = 2.0


def judge(plan, start, plain, ours):
    if plain.code != 0 or plain.late:
        return plan.row(NAME, f"{start}: program", FAIL, f"fails without us: exit {plain.code} {plain.err[-200:]!r}")
    foreign = [p.name for p in ours.files() if f"-{ours.pid}-" not in p.name]
    foreign += [p.name for p in ours.recordings()]
    plan.row(NAME, f"{start}: same end", (ours.code, ours.out, ours.late) == (0, plain.out, False),
             f"exit {ours.code}, late {ours.late}, stdout {'equal' if ours.out == plain.out else 'differs'}; "
             f"{plain.took_s:.1f} -> {ours.took_s:.1f} s {ours.err[-120:]!r}")
    plan.row(NAME, f"{start}: nothing from workers", not foreign and len(ours.our_lines) <= 1 and len(ours.files()) >= 2,
             f"files {len(ours.files())}, of others {foreign}, {len(ours.our_lines)} line(s)", "ours only, 1 line")
    return plan.row(NAME, f"{start}: no hang", ours.took_s <= plain.took_s * 1.5 + LATE_S,
                    f"{plain.took_s:.1f} -> {ours.took_s:.1f} s", "x1.5 + 2 s")


def run(plan, only=None):
    ways = [s for s in ("fork", "spawn") if only is None or s in only]
    starts = [((s, u), lambda s=s, u=u: victim.python(plan, "loader", "--start", s, ours=u)) for s in ways for u in (False, True)]
    ended = victim.several_at_once(plan, starts, seconds_each=25)
    for s in ways:
        pair = ended.get((s, False)), ended.get((s, True))
        if None in pair:
            plan.row(NAME, s, NOT_RUN, "no time left")
            continue
        plan.detail(NAME, s, {"plain": pair[0].as_detail(), "ours": pair[1].as_detail()})
        judge(plan, s, *pair)
