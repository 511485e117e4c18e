"""Memory that may be larger than the RAM it takes, for numpy, pandas, Arrow and all that works on buffers.

A size is a number of bytes, or a text with a unit: "512M", "1.5GiB". M and MiB are powers of 1024, MB of 1000.
"""

from collections.abc import Buffer, Mapping, Sequence
from contextlib import AbstractContextManager
from os import PathLike
from typing import Literal, TypeVar

Size = int | str
Advice = Literal["will-need", "cold", "never-swap", "may-swap"]
_Object = TypeVar("_Object", bound=Buffer)

class ArenaError(RuntimeError):
    """An arena could not be made, or could not do what it was asked to do.

    What has no room raises MemoryError, and a wrong argument ValueError.
    """

class Memory:
    """Whole pages of an arena: a buffer of bytes that can be written to, zero at first.

    numpy.frombuffer, memoryview and pyarrow.py_buffer take it. It is freed with the last reference to it, theirs
    included.
    """

    def __len__(self) -> int: ...
    def __buffer__(self, flags: int, /) -> memoryview: ...
    def advise(self, what: Advice, start: int = 0, end: int | None = None) -> None:
        """Say something of the pages of some of the bytes, as Arena.advise."""

class Pinned(AbstractContextManager[_Object]):
    """What ``pinned`` returns. For one ``with``."""

class NumpyArrays(AbstractContextManager[None]):
    """What ``Arena.numpy`` returns. For one ``with`` at a time."""

class Arena:
    """Memory that may be larger than the RAM that it takes.

    ram: what pages in memory, compressed pool and tables may take together; 8M at the least.
    pool: the most that the compressed pool takes of it. Half where there is a swap area, else seven eighths.
    swap, swap_size: a directory for an encrypted file without a name, and how large that may grow.
    codec: how pages are compressed: "auto", "lz4", "zstd" or "none", or zstd with a level from -7 to 19, such as
        "zstd:3". "auto" is lz4, and zstd for what would not fit otherwise.
    capacity: addresses to reserve, the most that can be allocated at a time. 16 times the RAM, and the swap areas.
    areas: more swap areas, each as ``vswap run --swap`` takes it: a directory for a private file, a file or device that
        ``vswap mkswap`` has prepared, or a store on other machines, with options: "/var/tmp:8G,prio=1,tier=slow",
        "/dev/vdb,prio=5,tier=fast", "valkey://far:6379:32G,tier=far". The highest priority is used first.
    far_copies: on how many nodes a store keeps each page, 1 or 2.
    far_backup: a directory for a private file in which pages of stores are written as well.
    """

    def __init__(
        self,
        *,
        ram: Size,
        pool: Size | None = None,
        swap: str | PathLike[str] | None = None,
        swap_size: Size | None = None,
        codec: str = "auto",
        capacity: Size | None = None,
        areas: Sequence[str] = (),
        far_copies: int = 1,
        far_backup: str | PathLike[str] | None = None,
    ) -> None: ...
    def group(
        self,
        name: str,
        *,
        swap_max: Size | None = None,
        pool_max: Size | None = None,
        tier_max: Mapping[str, Size] | None = None,
        writeback: bool = True,
    ) -> Arena:
        """The same arena for what belongs to a group, which may have only so much in pool, areas, and areas of a tier.

        Without writeback it goes to no area. "name/sub" lies in "name", whose limits hold for both together. A group
        that there is gets these limits. What they leave no room for stays in RAM.
        """

    def group_stats(self) -> dict[str, int | str] | None:
        """What the group has now, and how often a limit held up a page. None for the arena itself."""

    def areas(self) -> list[dict[str, int | str]]:
        """Figures of each swap area."""

    def allocate(self, size: Size) -> Memory:
        """Bytes that are zero. MemoryError if there is no room."""

    def numpy(self) -> NumpyArrays:
        """Have arrays of 16 KiB or more lie here that are made within a ``with``, by the same thread or task.

        Those that exist already stay where they are. numpy 1.22 or newer.
        """

    def use_for_numpy(self) -> None:
        """The same for all arrays that this thread makes from now on. Other threads call it too."""

    def advise(self, object: Buffer, what: Advice) -> None:
        """Say something of the pages of an object's memory, which lies here.

        "will-need": bring it back, as far as there is room. "cold": move it out soon. "never-swap": bring it back and
        keep it, until it is freed or "may-swap".
        """

    def stats(self) -> dict[str, int]:
        """Figures: bytes and pages of now, and what has happened so far."""

def pinned(object: _Object, /) -> Pinned[_Object]:
    """Keep an object's memory in RAM within a ``with``, for what passes it to the kernel.

    It may lie in any arena, or in none. MemoryError if so much cannot be pinned.
    """

def write(file: object, data: Buffer, /) -> int:
    """Write all bytes of an object to a file or a descriptor, past the file's buffer. Returns how many those were.

    The object's memory is one piece, and may be out: 1 MiB of it is in RAM at a time.
    """

def read_into(file: object, into: Buffer, /) -> int:
    """Read from a descriptor, or a file without a buffer, until an object's memory is full or the file ends.

    Returns how many bytes were read.
    """
