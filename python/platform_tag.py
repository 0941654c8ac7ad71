# SPDX-License-Identifier: Apache-2.0
"""Whose wheel it is: any Python 3 of an x86-64 Linux with glibc 2.28 or newer, which scripts/build links against."""

import pathlib

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class PlatformTag(BuildHookInterface):
    def initialize(self, version, build_data):
        if not (pathlib.Path(self.root) / "built").is_dir():
            raise SystemExit("gapprobe: this folder has no built library\n\nhint: scripts/wheel builds library, command and wheel")
        build_data["pure_python"] = False
        build_data["tag"] = "py3-none-manylinux_2_28_x86_64"
