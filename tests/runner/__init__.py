# SPDX-License-Identifier: Apache-2.0
"""What `scripts/test` is made of: the parts and their tiers, what each needs, how Rust tests run, the order of the rest in CI."""

import pathlib

ROOT = pathlib.Path(__file__).resolve().parents[2]
