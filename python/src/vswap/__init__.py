"""Run programs in less RAM than they need.

``run`` calls the program ``vswap``, which the wheel brings along. ``%load_ext vswap`` adds the magic ``%%vswap`` to
IPython and Jupyter.
"""

import json
import os
import subprocess
import tempfile
from importlib import metadata

__all__ = ["CompletedRun", "binary", "run"]


class CompletedRun(subprocess.CompletedProcess):
    """A ``subprocess.CompletedProcess`` with ``summary``: what ``vswap run --summary`` writes, as a dict.

    ``summary`` is None if the program was never started. ``args`` is the program's command, without vswap's.
    """

    summary = None


def binary():
    """The path of the program ``vswap`` that this module was installed with."""
    package = metadata.distribution(__name__)
    for file in package.files or []:
        path = package.locate_file(file)
        if file.name == "vswap" and os.access(path, os.X_OK) and os.path.isfile(path):
            return os.path.realpath(path)
    raise FileNotFoundError("the program vswap is not where its wheel has put it: install vswap again")


def run(args, *, ram, options=(), check=False, **keywords):
    """Run a program with at most ``ram`` of memory, and return a ``CompletedRun``.

    args: the program and its arguments, as a list.
    ram: what ``--ram`` takes, such as "512M", "50%" or "auto".
    options: more options of ``vswap run``, as a list of strings.
    check: raise ``subprocess.CalledProcessError`` if the exit status is not 0.

    All other keywords are those of ``subprocess.run``. The line that vswap prints at the end is left out: ``summary``
    has it all.
    """
    if isinstance(args, (str, bytes, os.PathLike)) or keywords.get("shell"):
        raise TypeError('args is a list, such as ["sort", "big.txt"]; for a shell: ["sh", "-c", "..."]')
    with tempfile.TemporaryDirectory(prefix="vswap-") as place:
        file = os.path.join(place, "summary.json")
        command = [binary(), "run", "--ram", str(ram), "--quiet", "--summary", file, *options, "--", *args]
        done = subprocess.run(command, **keywords)
        result = CompletedRun(list(args), done.returncode, done.stdout, done.stderr)
        result.summary = _summary(file)
    if check:
        result.check_returncode()
    return result


def _summary(file):
    try:
        with open(file, encoding="utf-8") as summary:
            return json.load(summary)
    except (FileNotFoundError, json.JSONDecodeError):
        # Nothing was started; vswap has said why.
        return None


def load_ipython_extension(ipython):
    """What ``%load_ext vswap`` calls."""
    from vswap import _magic

    ipython.register_magic_function(_magic.vswap, magic_kind="cell")
