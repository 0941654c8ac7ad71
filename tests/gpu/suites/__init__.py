# SPDX-License-Identifier: Apache-2.0
"""The suites of scripts/gpu-check, one file each: NAME, ABOUT, and run(plan), which adds rows."""
