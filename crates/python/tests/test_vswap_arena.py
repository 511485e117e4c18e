"""The module as its users have it: each test holds several times its RAM, and verifies every byte.

`cargo test -p vswap-python` builds the module and runs this.
"""

import contextlib
import gc
import os
import signal
import socket
import sys
import tempfile
import threading
import unittest

import numpy
import vswap_arena

RAM = 16 << 20
# Four times the RAM.
BYTES = 4 * RAM


def arena(**more):
    return vswap_arena.Arena(ram=RAM, swap=tempfile.gettempdir(), swap_size="1G", **more)


def content(words, seed):
    """Words that lz4 halves, the same for the same seed."""
    random = numpy.random.Generator(numpy.random.PCG64(seed))
    values = random.integers(0, 1 << 32, size=words, dtype=numpy.uint64)
    return values


def fill(target, seed):
    """Fill an array of words part by part, so that what is compared with needs little memory."""
    words = 1 << 16
    for part in range(0, len(target), words):
        end = min(part + words, len(target))
        target[part:end] = content(end - part, seed + part)


def wrong_words(target, seed):
    words = 1 << 16
    wrong = 0
    for part in range(0, len(target), words):
        end = min(part + words, len(target))
        wrong += int(numpy.count_nonzero(target[part:end] != content(end - part, seed + part)))
    return wrong


def status_of_child(child):
    """Run a function in the child of a fork, and return how the child ended."""
    pid = os.fork()
    if pid == 0:
        code = 99
        try:
            code = child()
        finally:
            os._exit(code or 0)
    return os.waitpid(pid, 0)[1]


class Buffers(unittest.TestCase):
    def test_an_array_on_a_buffer_of_four_times_the_ram_keeps_every_word(self):
        memory = arena().allocate(BYTES)
        array = numpy.frombuffer(memory, dtype=numpy.uint64)
        self.assertTrue(array.flags.writeable)
        self.assertEqual(len(memory), BYTES)
        self.assertEqual(int(array[:: 1 << 9].max()), 0)
        fill(array, 1)
        self.assertEqual(wrong_words(array, 1), 0)

    def test_what_was_made_of_a_buffer_keeps_it_alive(self):
        held = arena()
        view = memoryview(held.allocate(BYTES))
        view[5] = 7
        view[BYTES - 1] = 9
        self.assertEqual((view.format, view.itemsize, view.nbytes, view.shape), ("B", 1, BYTES, (BYTES,)))
        part = view[5 : BYTES : BYTES - 6]
        del view
        gc.collect()
        self.assertEqual(part.tolist(), [7, 9])
        self.assertGreaterEqual(held.stats()["allocated_bytes"], BYTES)
        part.release()
        gc.collect()
        self.assertEqual(held.stats()["allocated_bytes"], 0)

    def test_the_limit_holds(self):
        held = arena()
        memory = held.allocate(BYTES)
        array = numpy.frombuffer(memory, dtype=numpy.uint64)
        fill(array, 2)
        stats = held.stats()
        self.assertLessEqual(stats["used_bytes"], RAM * 104 // 100)
        self.assertGreater(stats["evicted_pages"], BYTES // 4096 // 2)
        self.assertEqual(stats["damaged_pages"], 0)
        self.assertIn("raw_pages", stats)


class Numpy(unittest.TestCase):
    def test_arrays_of_a_script_lie_there_and_compute_right(self):
        held = arena()
        with held.numpy():
            numbers = numpy.arange(BYTES // 8, dtype=numpy.uint64)
            squares = numbers * numbers
            ones = numpy.ones(1 << 20)
        self.assertGreater(held.stats()["allocated_bytes"], 2 * BYTES)
        for part in range(0, len(numbers), 1 << 18):
            known = numpy.arange(part, part + (1 << 18), dtype=numpy.uint64)
            self.assertTrue((squares[part : part + (1 << 18)] == known * known).all())
        self.assertEqual(ones.sum(), 1 << 20)
        del numbers, squares, ones
        gc.collect()
        self.assertEqual(held.stats()["allocated_bytes"], 0)

    def test_arrays_grow_shrink_and_are_zero_where_they_should_be(self):
        held = arena()
        with held.numpy():
            array = numpy.zeros(100, dtype=numpy.uint64)
            array[:] = content(100, 3)
            for words in (1 << 20, BYTES // 8, 1 << 12, 50, 1 << 16):
                kept = min(len(array), words)
                before = array[: min(kept, 50)].copy()
                array.resize(words, refcheck=False)
                self.assertTrue((array[: len(before)] == before).all())
                self.assertEqual(int(array[kept:].max(initial=0)), 0)
            again = numpy.zeros(BYTES // 8, dtype=numpy.uint64)
            self.assertEqual(int(again.max()), 0)

    def test_the_handler_is_that_of_the_with_alone(self):
        held = arena()
        outer = arena()
        with outer.numpy():
            with held.numpy():
                inside = numpy.zeros(1 << 20)
            between = numpy.zeros(1 << 20)
        after = numpy.zeros(1 << 20)
        for array in (inside, between, after):
            array[:] = 3
        allocated = [there.stats()["allocated_bytes"] for there in (held, outer)]
        self.assertEqual(allocated, [8 << 20, 8 << 20])
        twice = held.numpy()
        with twice, self.assertRaises(RuntimeError):
            twice.__enter__()
        self.assertEqual((inside + between + after).sum(), 9 << 20)

    def test_threads_compute_beside_each_other(self):
        held = arena()
        results = []

        def work(seed):
            with held.numpy():
                array = numpy.empty(BYTES // 16, dtype=numpy.uint64)
                fill(array, seed)
                results.append(wrong_words(array, seed))

        threads = [threading.Thread(target=work, args=(seed,)) for seed in (10_000_000, 20_000_000)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(results, [0, 0])

    def test_what_does_not_fit_is_a_memory_error(self):
        held = vswap_arena.Arena(ram=RAM, capacity="64M")
        with held.numpy(), self.assertRaises(MemoryError):
            numpy.zeros(100 << 20)

    def test_for_the_rest_of_a_script(self):
        script = (
            "import numpy, vswap_arena\n"
            "arena = vswap_arena.Arena(ram='16M', swap='/tmp', swap_size='256M')\n"
            "arena.use_for_numpy()\n"
            "table = numpy.arange(8_000_000)\n"
            "print(int(table.sum()), arena.stats()['allocated_bytes'] >= table.nbytes)\n"
        )
        run = __import__("subprocess").run([sys.executable, "-c", script], capture_output=True, text=True)
        self.assertEqual((run.stdout, run.stderr, run.returncode), ("31999996000000 True\n", "", 0))


class Groups(unittest.TestCase):
    def test_groups_have_so_much_of_each_tier_and_every_word_is_right(self):
        place = tempfile.gettempdir()
        held = vswap_arena.Arena(
            ram=RAM,
            pool=RAM // 8,
            areas=[f"{place}:1G,prio=5,tier=fast", f"{place}:1G,prio=1,tier=slow"],
        )
        slow = held.group("jobs/slow", swap_max=RAM // 2, tier_max={"fast": 0})
        inside = held.group("jobs/inside", writeback=False)
        arrays = []
        for owner, size in [(held, 2 * RAM), (slow, RAM), (inside, RAM // 8)]:
            with owner.numpy():
                arrays.append(numpy.zeros(size // 8, dtype=numpy.uint64))
        for seed in (1, 2):
            for array in arrays:
                fill(array, seed)
            for array in arrays:
                self.assertEqual(wrong_words(array, seed), 0)
        fast_area, slow_area = held.areas()
        self.assertEqual((fast_area["tier"], slow_area["tier"]), ("fast", "slow"))
        self.assertGreater(fast_area["used_bytes"], 0)
        jobs = slow.group_stats()
        self.assertEqual((jobs["name"], jobs["swap_bytes"]), ("jobs/slow", slow_area["used_bytes"]))
        self.assertTrue(0 < jobs["swap_bytes"] <= RAM // 2)
        self.assertEqual(inside.group_stats()["swap_bytes"], 0)
        self.assertIsNone(held.group_stats())


class Kernel(unittest.TestCase):
    def setUp(self):
        self.arena = arena()
        self.array = numpy.frombuffer(self.arena.allocate(BYTES), dtype=numpy.uint64)
        fill(self.array, 4)

    def test_files_are_written_and_read_part_by_part(self):
        with tempfile.TemporaryFile(buffering=0) as file:
            self.assertEqual(vswap_arena.write(file, self.array), BYTES)
            self.assertEqual(os.fstat(file.fileno()).st_size, BYTES)
            other = numpy.frombuffer(self.arena.allocate(BYTES), dtype=numpy.uint64)
            file.seek(0)
            self.assertEqual(vswap_arena.read_into(file.fileno(), other), BYTES)
            self.assertEqual(vswap_arena.read_into(file, other), 0)
        self.assertEqual(wrong_words(other, 4), 0)
        self.assertEqual(self.arena.stats()["pinned_bytes"], 0)

    def test_what_a_file_has_buffered_comes_first(self):
        with tempfile.TemporaryFile() as file:
            file.write(b"before")
            vswap_arena.write(file, self.array[:1000])
            file.seek(0)
            self.assertEqual(file.read(6), b"before")
            self.assertEqual(file.read(), self.array[:1000].tobytes())

    def test_pinned_memory_can_be_passed_on(self):
        part = self.array[100_000:300_000]
        ours, theirs = socket.socketpair()
        received = bytearray(part.nbytes)

        def receive():
            view = memoryview(received)
            while view:
                view = view[theirs.recv_into(view) :]

        thread = threading.Thread(target=receive)
        thread.start()
        with contextlib.closing(ours), vswap_arena.pinned(part) as held:
            self.assertIs(held, part)
            self.assertGreaterEqual(self.arena.stats()["pinned_bytes"], part.nbytes)
            ours.sendall(held)
        thread.join()
        theirs.close()
        self.assertEqual(bytes(received), part.tobytes())
        self.assertEqual(self.arena.stats()["pinned_bytes"], 0)

    def test_pins_know_arrays_that_are_no_piece(self):
        for view in (self.array[400_000:0:-1024], self.array[: 1 << 18].reshape(512, 512)[::2, ::3].T, self.array[:0]):
            with vswap_arena.pinned(view):
                pinned = self.arena.stats()["pinned_bytes"]
                self.assertGreaterEqual(pinned + 4096, view.size * 8 if view.size else 0)
            self.assertEqual(self.arena.stats()["pinned_bytes"], 0)
            self.assertRaises(BufferError, vswap_arena.write, 1, self.array[::2])

    def test_more_than_fits_cannot_be_pinned(self):
        with self.assertRaises(MemoryError):
            vswap_arena.pinned(self.array).__enter__()
        self.assertEqual(self.arena.stats()["pinned_bytes"], 0)
        self.assertEqual(wrong_words(self.array, 4), 0)

    def test_advice_moves_pages(self):
        self.arena.advise(self.array[: 1 << 19], "never-swap")
        fill(self.array[1 << 19 :], 5)
        before = self.arena.stats()
        self.assertEqual(wrong_words(self.array[: 1 << 19], 4), 0)
        after = self.arena.stats()
        came_back = [stats["pool_faults"] + stats["area_faults"] for stats in (before, after)]
        self.assertEqual(came_back[0], came_back[1])
        self.arena.advise(self.array[: 1 << 19], "may-swap")
        self.assertEqual(self.arena.stats()["pinned_bytes"], 0)


class Wrong(unittest.TestCase):
    def test_wrong_arguments_have_errors_that_say_what_to_do(self):
        for keywords, error, text in [
            ({"ram": "lots"}, ValueError, "like 512M"),
            ({"ram": -1}, TypeError, "a size is"),
            ({"ram": 1}, ValueError, "at least"),
            ({"ram": RAM, "codec": "zip"}, ValueError, "lz4"),
            ({"ram": RAM, "codec": "zstd:20"}, ValueError, "'20' is no level of zstd"),
            ({"ram": RAM, "swap": "/tmp"}, ValueError, "give both"),
            ({"ram": RAM, "swap": "/nowhere/at/all", "swap_size": "1G"}, vswap_arena.ArenaError, "/nowhere/at/all"),
            ({"ram": RAM, "areas": ["/nowhere/at/all"]}, vswap_arena.ArenaError, "no such file"),
            ({"ram": RAM, "areas": ["/tmp:1G,prio=x"]}, ValueError, "0 to 32767"),
            ({"ram": RAM, "far_copies": 3}, ValueError, "1 or 2"),
            ({}, TypeError, "ram"),
        ]:
            with self.subTest(keywords=keywords), self.assertRaisesRegex(error, text):
                vswap_arena.Arena(**keywords)
        held = arena()
        for name, limits, error, text in [
            ("a//b", {}, ValueError, "empty part"),
            ("a", {"tier_max": {"far": 0}}, ValueError, "no tier far here, only default"),
            ("a", {"swap_max": "lots"}, ValueError, "like 512M"),
        ]:
            with self.subTest(name=name, limits=limits), self.assertRaisesRegex(error, text):
                held.group(name, **limits)
        with self.assertRaisesRegex(ValueError, "0 bytes"):
            held.allocate(0)
        with self.assertRaises(MemoryError):
            held.allocate(1 << 62)
        with self.assertRaisesRegex(ValueError, "not the arena's"):
            held.advise(bytearray(10), "cold")
        memory = held.allocate(8192)
        with self.assertRaisesRegex(ValueError, "no advice"):
            memory.advise("hot")
        with self.assertRaisesRegex(ValueError, "not the arena's"):
            memory.advise("cold", 5, 8193)
        with self.assertRaises(TypeError):
            vswap_arena.pinned(5).__enter__()
        with self.assertRaises(BufferError):
            vswap_arena.read_into(0, b"never")
        with self.assertRaises(OSError):
            vswap_arena.write(1_000_000, memory)
        with tempfile.TemporaryFile() as file, self.assertRaisesRegex(ValueError, "buffering=0"):
            vswap_arena.read_into(file, memory)

    def test_the_child_of_a_fork_does_not_have_the_memory(self):
        held = arena()
        array = numpy.frombuffer(held.allocate(BYTES), dtype=numpy.uint64)
        fill(array, 6)

        def touch():
            signal.signal(signal.SIGSEGV, signal.SIG_DFL)
            # What the child maps does not lie where the memory was.
            more = [bytearray(BYTES) for _ in range(4)]
            return 1 + int(array[1000]) % 7 + len(more)

        def use():
            try:
                held.allocate(100)
            except vswap_arena.ArenaError as error:
                return 0 if "fork" in str(error) else 1
            return 2

        status = status_of_child(touch)
        self.assertTrue(os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGSEGV, status)
        self.assertEqual(status_of_child(use), 0)

        def make():
            own = arena()
            other = numpy.frombuffer(own.allocate(BYTES), dtype=numpy.uint64)
            fill(other, 7)
            return min(wrong_words(other, 7), 1)

        self.assertEqual(status_of_child(make), 0)
        self.assertEqual(wrong_words(array, 6), 0)


if __name__ == "__main__":
    unittest.main()
