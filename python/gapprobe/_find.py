# SPDX-License-Identifier: Apache-2.0
"""Where libgapprobe.so and the command `gapprobe` are."""

import os
import pathlib

_HERE = pathlib.Path(__file__).resolve().parent


class NotFound(FileNotFoundError):
    """A file of gapprobe is nowhere; the message says where it was looked for."""


def library():
    """Path of libgapprobe.so. GAPPROBE_HOME names a folder to look in first. Raises NotFound."""
    return _find("libgapprobe.so", "libexec/gapprobe/libgapprobe.so")


def command():
    """Path of the command `gapprobe`. GAPPROBE_HOME names a folder to look in first. Raises NotFound."""
    return _find("gapprobe", "bin/gapprobe")


def _find(name, installed):
    """A file by its name in a build folder, and by its place below an environment."""
    home = os.environ.get("GAPPROBE_HOME")
    places = [pathlib.Path(home) / name] if home else []
    checkout = _HERE.parent.parent
    if (checkout / "scripts" / "build").is_file():
        places.append(checkout / "build" / name)
        hint = "scripts/build makes it"
    else:
        # (beside the package: where `pip install --target` puts it)
        places += _of_the_wheel(installed) + [_HERE.parent / installed]
        hint = "pip install --force-reinstall gapprobe-*.whl"
    for place in places:
        if place.is_file():
            return str(place)
    looked = "\n".join("  " + str(place) for place in places)
    raise NotFound("%s was not found; looked for\n%s\n\nhint: %s" % (name, looked, hint))


def _of_the_wheel(installed):
    """Where the wheel that this very package is of put a file."""
    from importlib import metadata  # 20 ms that a training script need not pay

    found = []
    for wheel in metadata.distributions(name="gapprobe", path=[str(_HERE.parent)]):
        for file in wheel.files or []:
            place = os.path.normpath(str(file.locate()))
            if place.endswith("/" + installed):
                found.append(pathlib.Path(place))
    return found
