# SPDX-License-Identifier: Apache-2.0
"""What CI runs of the rest: any four commits in a row run all of it, and none of it is dropped by an order."""

import pathlib
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))

from runner import rotation  # noqa: E402
from runner.parts import PARTS, Row  # noqa: E402

REST = [row for row in PARTS.values() if row.tier == "rest"]


def surely(rows, seconds):
    """What runs in so many seconds if each part takes all it may."""
    ran = []
    for row in rows:
        if row.seconds <= seconds:
            ran.append(row.function.__name__)
            seconds -= row.seconds
    return set(ran)


class Rotation(unittest.TestCase):
    def test_any_four_commits_in_a_row_run_every_part(self):
        everything = {row.function.__name__ for row in REST}
        for first in range(12):
            commits = range(first, first + rotation.QUARTERS)
            ran = set.union(*(surely(rotation.order(REST, n), rotation.CI_SECONDS) for n in commits))
            self.assertEqual(ran, everything, f"commits from {first} on")

    def test_no_quarter_takes_longer_than_ci_has(self):
        for quarter in rotation.quarters(REST):
            self.assertLessEqual(sum(row.seconds for row in quarter), rotation.CI_SECONDS)

    def test_each_order_holds_each_part_once(self):
        for n in range(4):
            self.assertCountEqual([row.function for row in rotation.order(REST, n)], [row.function for row in REST])

    def test_a_part_that_takes_too_long_for_ci_is_found(self):
        rows = [*REST, Row(len, "rest", rotation.CI_SECONDS + 1, [])]
        ran = set.union(*(surely(rotation.order(rows, n), rotation.CI_SECONDS) for n in range(4)))
        self.assertNotIn("len", ran)

    def test_each_commit_begins_with_another_quarter(self):
        firsts = [rotation.order(REST, n)[0].function for n in range(4)]
        self.assertEqual(len(set(firsts)), 4)


if __name__ == "__main__":
    unittest.main()
