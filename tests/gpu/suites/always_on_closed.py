# SPDX-License-Identifier: Apache-2.0
"""The side `closed` of the suite `always_on`: gapprobe with the settings it has by itself, but that recording may cost a tenth of a second before
its budget counts, where it is two seconds elsewhere. Each process takes its GPU last of all, and plays alone until its window is closed: what it waits for its
turn would count as time that the budget is a share of. The rounds lie behind that, and whether another window opened in them is in its summary."""

import json
import os
import subprocess
import time

from check import turns

CLOSED = "closed"
# Of blocks a process. A GPU that is the limit waits for few launches: the budget goes slowly.
WITHIN_S = 15
LONGER_S = {"gpt_large": 40}
# Ten seconds without a step, and gapprobe opens a window to see why: those that wait get a block
# now and then, of so many steps at least that the newest eight are not the pause's.
AWAKE_S = 5
AWAKE_STEPS = 10


def is_off(plan, player):
    """Whether `gapprobe ps` says of all of its processes that nothing is recorded, twice: the recording's header is written every 50 ms."""
    return says_off(plan, player) and (time.sleep(0.1) or says_off(plan, player))


def says_off(plan, player):
    for v in player.victims:
        try:
            said = subprocess.run([plan.build / "gapprobe", "ps", "--json"], env={**os.environ, "TMPDIR": str(v.directory)}, capture_output=True,
                                  text=True, timeout=20).stdout
            standing = [one["standing"] for one in json.loads(said)["processes"] if one["pid"] == v.process.pid]
        except (OSError, subprocess.SubprocessError, ValueError, KeyError):
            return False
        if standing != ["off"]:
            return False
    return True


class Awake:
    """Those whose window is closed, and when each played last."""

    def __init__(self, steps):
        self.steps, self.last = max(steps, AWAKE_STEPS), {}

    def add(self, player):
        self.last[player] = time.monotonic()

    def keep(self):
        """A block for each that has waited."""
        for player, last in list(self.last.items()):
            if time.monotonic() - last > AWAKE_S:
                player.block(self.steps)
                self.add(player)


def ready(plan, player, awake):
    """wait_ready() of one, while the others are kept awake."""
    until = time.monotonic() + min(turns.READY_S, max(plan.left() - 10, 1))
    while time.monotonic() < until and not player.is_gone():
        if player.wait_ready(1):
            return True
        awake.keep()
    return False


def close(plan, program, players, steps):
    """Drives each of them by blocks until nothing is recorded any more: {name: {"closed", "blocks_s", "all_steps"}}; who did not get ready is not in it."""
    within, awake, found = LONGER_S.get(program, WITHIN_S), Awake(steps), {}
    for player in players:
        if plan.dry or not ready(plan, player, awake):
            continue
        spent, off = 0.0, is_off(plan, player)
        while not off and spent < within and plan.left() > 60:
            began = time.monotonic()
            if player.block(steps) is None:
                break
            spent += time.monotonic() - began
            off = is_off(plan, player)
            awake.keep()
        found[player.name] = {"closed": off, "blocks_s": round(spent, 2), "all_steps": player.all_steps}
        awake.add(player)
    return found


def facts_of(left, all_steps, closing):
    """What the summaries of a player's processes say of what was recorded, each {"seen", "all", "windows", "alarms"}, none where there is no summary;
    and how its window was closed, where it was to be."""
    found = []
    for ended in left:
        summary = ended.summary()
        if summary:
            totals, coverage = summary.get("totals") or {}, summary.get("coverage") or {}
            found.append({"seen": coverage.get("steps_seen"), "all": all_steps, "windows": totals.get("windows"), "alarms": totals.get("alarms")})
    return {"ranks": found, "processes": len(left), "closing": closing}
