# SPDX-License-Identifier: Apache-2.0
"""Which parts of the rest CI runs first. Each commit begins with another quarter of them, so that four commits in a row run them all,
however little time there is beyond a quarter's."""

QUARTERS = 4
# What CI has for the rest, s: an hour less what `scripts/test` and the machine's noise may take of
# it.
CI_SECONDS = 2400


def quarters(rows):
    """The rows in four runs of about the same time, in their order. A row has `seconds`, the time it may take."""
    whole = sum(row.seconds for row in rows)
    found, before = [[] for _ in range(QUARTERS)], 0
    for row in rows:
        # by where its middle lies
        found[int((before + row.seconds / 2) * QUARTERS / whole)].append(row)
        before += row.seconds
    return found


def order(rows, commits):
    """All rows, beginning with the quarter that is `commits`' turn."""
    parts = quarters(rows)
    return [row for n in range(QUARTERS) for row in parts[(commits + n) % QUARTERS]]
