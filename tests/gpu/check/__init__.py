# SPDX-License-Identifier: Apache-2.0
"""What every suite of scripts/gpu-check stands on: the plan with its time budget, victims, statistics, trace reading."""
