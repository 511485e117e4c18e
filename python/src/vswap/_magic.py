"""``%%vswap``: runs a cell in a Python of its own, or in another program, with less RAM than it needs."""

import shlex
import sys

from IPython import get_ipython

from vswap import binary


def vswap(line, cell):
    """%%vswap --ram SIZE [options of vswap run] [-- program]

    Run the cell in less RAM than it needs. It runs in a Python of its own, without the notebook's variables; or a
    program that is named after -- gets it on its standard input.
    """
    words = shlex.split(line)
    if "--" not in words:
        # -u: what the cell prints is to be seen as it comes.
        words += ["--", sys.executable, "-u", "-"]
    command = shlex.join([binary(), "run", *words])
    # IPython's own way to give a cell to a program: output as it comes, and an interrupt ends it. It takes options such
    # as --out for itself, wherever they stand, so it gets the whole command as one word.
    get_ipython().run_cell_magic("script", shlex.join(["sh", "-c", f"exec {command}"]), cell)
