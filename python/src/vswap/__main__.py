"""``python -m vswap`` is the program ``vswap``."""

import os
import sys

from vswap import binary

if __name__ == "__main__":
    path = binary()
    os.execv(path, ["vswap", *sys.argv[1:]])
