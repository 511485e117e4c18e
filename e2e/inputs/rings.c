// A program with an io_uring forks while its memory is out, and its parent gives some of that memory up at once. The
// child has all of it.
//
// usage: rings ROUNDS
//
// It prints "right" and ends with 0, or says what is wrong and ends with 1.
#define _GNU_SOURCE
#include <errno.h>
#include <linux/io_uring.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

enum { PAGE_WORDS = 512, PAGES = 64, OUT_US = 8000, CHILD_US = 3000 };

static void fail(const char *what, unsigned long number) {
    printf("%s %lu (errno %d)\n", what, number, errno);
    fflush(stdout);
    _exit(1);
}

static uint64_t content(size_t round, size_t at) { return (round << 32 | at) * 0x9e3779b97f4a7c15 | 1; }

static void verify(const uint64_t *words, size_t round) {
    for (size_t at = 0; at < PAGES * PAGE_WORDS; at++)
        if (words[at] != content(round, at)) fail(words[at] ? "wrong word" : "zero word", at);
}

static void unmap(char *from, char *to) {
    if (from < to && munmap(from, (size_t)(to - from))) fail("munmap", (unsigned long)(to - from));
}

// Which part of the memory is given up in a round.
static char *part_of(uint64_t *words, size_t round) { return (char *)words + 4096 * (round % 32); }
static size_t part_bytes(size_t round) { return 4096 * (1 + round % 5); }

static void give_up(uint64_t *words, size_t round) {
    char *part = part_of(words, round);
    size_t bytes = part_bytes(round);
    int flags = MAP_SHARED | MAP_ANONYMOUS | MAP_FIXED | MAP_POPULATE;
    switch (round % 3) {
    case 0:
        unmap(part, part + bytes);
        break;
    case 1:
        if (madvise(part, bytes, MADV_DONTNEED)) fail("MADV_DONTNEED", round);
        break;
    default:
        if (mmap(part, bytes, PROT_READ | PROT_WRITE, flags, -1, 0) != part) fail("mmap", round);
    }
}

int main(int argc, char **argv) {
    if (argc != 2) return 2;
    struct io_uring_params params = {0};
    if (syscall(SYS_io_uring_setup, 4, &params) < 0) fail("io_uring_setup", 0);
    for (size_t round = 0; round < strtoul(argv[1], NULL, 10); round++) {
        size_t bytes = PAGES * PAGE_WORDS * 8;
        uint64_t *words = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (words == MAP_FAILED) fail("mmap", round);
        for (size_t at = 0; at < PAGES * PAGE_WORDS; at++) words[at] = content(round, at);
        usleep(OUT_US);
        pid_t child = fork();
        if (child < 0) fail("fork", round);
        if (child == 0) {
            usleep(CHILD_US);
            verify(words, round);
            _exit(0);
        }
        give_up(words, round);
        int status;
        if (waitpid(child, &status, 0) != child || status != 0) fail("a child ended with", (unsigned long)status);
        // Not what is unmapped already: somebody else may have mapped memory there.
        char *part = part_of(words, round), *end = (char *)words + bytes;
        unmap((char *)words, part);
        unmap(round % 3 ? part : part + part_bytes(round), end);
    }
    puts("right");
    return 0;
}
