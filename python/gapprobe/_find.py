# SPDX-License-Identifier: Apache-2.0
"""Where libgapprobe.so and the command `gapprobe` are."""

import os
import pathlib
import shutil

_HERE = pathlib.Path(__file__).resolve().parent
# In a wheel beside this file; in a checkout where scripts/build puts it.
_FOLDERS = (_HERE / "built", _HERE.parent.parent / "build")


class NotFound(FileNotFoundError):
    """A file of gapprobe is nowhere; the message says where it was looked for."""


def library():
    """Path of libgapprobe.so. GAPPROBE_HOME names a folder to look in first. Raises NotFound."""
    return _find("libgapprobe.so", [])


def command():
    """Path of the command `gapprobe`. GAPPROBE_HOME names a folder to look in first. Raises NotFound."""
    return _find("gapprobe", _on_path())


def _on_path():
    """The command on PATH, unless it is the little script that starts this very package."""
    found = shutil.which("gapprobe")
    if found:
        with open(found, "rb") as file:
            if file.read(4) == b"\x7fELF":
                return [pathlib.Path(found)]
    return []


def _find(name, more):
    home = os.environ.get("GAPPROBE_HOME")
    places = [pathlib.Path(home) / name] if home else []
    places += [folder / name for folder in _FOLDERS] + more
    for place in places:
        if place.is_file():
            return str(place)
    looked = "\n".join("  " + str(place) for place in places)
    raise NotFound("%s was not found; looked for\n%s\n\nhint: scripts/build makes it" % (name, looked))
