# SPDX-License-Identifier: Apache-2.0
"""Raw CUPTI records of the driver-API program under each CUPTI release in build/cupti/<release>/, kept for replay in CI."""

import gzip
import io
import json
import tarfile

from check import native, victim
from check.plan import NOT_RUN

NAME = "records"
ABOUT = "raw records under CUPTI 11.8, 12.4, 12.9, 13.0, 13.5, saved as records.tar.gz (about 15 s)"

RELEASES = ("11.8", "12.4", "12.9", "13.0", "13.5")


def library_of(plan, release):
    """The libcupti of a release, or None."""
    found = sorted((plan.build / "cupti" / release).glob("libcupti.so.*"))
    return found[0] if found else None


def judge(plan, release, ended, raw):
    totals = (ended.summary() or {}).get("totals") or {}
    truth = ended.truth
    good = (ended.code == 0 and bool(raw) and bool(truth) and totals.get("kernels") == truth["kernels"]
            and totals.get("copies") == truth["copies"] and totals.get("memsets") == truth["memsets"])
    return plan.row(NAME, f"CUPTI {release}", good,
                    f"exit {ended.code}, {len(raw)} raw bytes; kernels {totals.get('kernels')}/{truth.get('kernels')}, copies "
                    f"{totals.get('copies')}/{truth.get('copies')}, memsets {totals.get('memsets')}/{truth.get('memsets')} {ended.err[-120:]!r}",
                    "equal")


def run(plan, only=None):
    made = native.built(plan, "driver_api")
    if "driver_api" not in made:
        plan.row(NAME, "whole suite", NOT_RUN, "no built program")
        return
    starts = []
    for release in RELEASES if only is None else only:
        library = library_of(plan, release)
        if library is None:
            plan.row(NAME, f"CUPTI {release}", NOT_RUN, f"no {plan.build / 'cupti' / release}/libcupti.so.*")
            continue
        env = {"GAPPROBE_CUPTI": str(library), "GAPPROBE_TEST_RAW": "raw.bin", "GAPPROBE_MAX_MB": "64"}
        starts.append((release, lambda e=env: victim.Victim(plan, [made["driver_api"]], ours=True, env=e, name="records")))
    ended = victim.several_at_once(plan, starts, seconds_each=15, jobs=1)
    with tarfile.open(plan.out / "records.tar.gz", "w:gz") as archive:
        for release, one in ended.items():
            if one is None:
                plan.row(NAME, f"CUPTI {release}", NOT_RUN, "no time left")
                continue
            path = one.directory / "raw.bin"
            raw = path.read_bytes() if path.is_file() else b""
            plan.detail(NAME, release, one.as_detail())
            judge(plan, release, one, raw)
            for name, data in ((f"{release}.raw.gz", gzip.compress(raw)),
                               (f"{release}.json", json.dumps({"truth": one.truth, "summary": one.summary(), "machine": plan.machine}).encode())):
                entry = tarfile.TarInfo(name)
                entry.size = len(data)
                archive.addfile(entry, io.BytesIO(data))

