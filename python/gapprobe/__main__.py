# SPDX-License-Identifier: Apache-2.0
"""`python -m gapprobe ...` is the command `gapprobe ...`."""

import os
import sys

from gapprobe._find import NotFound, command


def main():
    """Becomes the command; returns only where it is not there."""
    try:
        file = command()
    except NotFound as error:
        print("gapprobe: %s" % error, file=sys.stderr)
        return 127
    os.execv(file, [file] + sys.argv[1:])
    return 127


if __name__ == "__main__":
    sys.exit(main())
