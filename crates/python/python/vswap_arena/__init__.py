"""Memory that may be larger than the RAM it takes, for numpy, pandas, Arrow and all that works on buffers.

    arena = vswap_arena.Arena(ram="512M", swap="/var/tmp", swap_size="8G")
    with arena.numpy():
        table = numpy.zeros((100_000, 10_000))

What is touched while it is out comes back in the thread that touched it. System calls do not wait for that: wrap what
you pass to them in ``pinned``, or use ``write`` and ``read_into``.
"""

from ._vswap_arena import Arena, ArenaError, Memory, NumpyArrays, Pinned, pinned, read_into, write

__all__ = ["Arena", "ArenaError", "Memory", "NumpyArrays", "Pinned", "pinned", "read_into", "write"]
