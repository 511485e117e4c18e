/* What the test programs share: checks, content that a seed determines, waiting for the background. */
#ifndef CHECK_H
#define CHECK_H

/* For what Linux has beyond POSIX. */
#define _GNU_SOURCE

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include <vswap.h>

#define CHECK(condition)                                                                                              \
    do {                                                                                                              \
        if (!(condition)) {                                                                                           \
            fprintf(stderr, "%s:%d: %s does not hold; errno %s; last error %d: %s\n", __FILE__, __LINE__, #condition, \
                    strerror(errno), vswap_error_code(), vswap_error_text());                                         \
            exit(1);                                                                                                  \
        }                                                                                                             \
    } while (0)

enum { PAGE = 4096 };
#define MIB ((size_t)1 << 20)

static inline uint64_t mixed(uint64_t number)
{
    number += 0x9e3779b97f4a7c15u;
    number = (number ^ (number >> 30)) * 0xbf58476d1ce4e5b9u;
    number = (number ^ (number >> 27)) * 0x94d049bb133111ebu;
    return number ^ (number >> 31);
}

static inline uint64_t next_random(uint64_t *state)
{
    *state += 1;
    return mixed(*state);
}

/* One byte of some content: a quarter of the words is noise, so pages can be compressed. */
static inline unsigned char content(uint64_t seed, size_t at)
{
    size_t word = at / 8;
    uint64_t value = word % 4 == 0 ? mixed(seed * 0x100000001b3u + word) : seed;
    return (unsigned char)(value >> (at % 8 * 8));
}

static inline void fill(unsigned char *memory, size_t bytes, uint64_t seed)
{
    for (size_t at = 0; at < bytes; at++)
        memory[at] = content(seed, at);
}

/* The first byte that is not as it should be, or bytes. */
static inline size_t same_until(const unsigned char *memory, size_t bytes, uint64_t seed)
{
    size_t at = 0;
    while (at < bytes && memory[at] == content(seed, at))
        at++;
    return at;
}

static inline int is_zero(const unsigned char *memory, size_t bytes)
{
    for (size_t at = 0; at < bytes; at++)
        if (memory[at] != 0)
            return 0;
    return 1;
}

static inline vswap_statistics figures(vswap_arena *arena)
{
    vswap_statistics statistics = VSWAP_STATISTICS_INIT;
    CHECK(vswap_stats(arena, &statistics) == VSWAP_OK);
    return statistics;
}

/* An arena of the smallest RAM, with a swap area of 256 MiB. */
static inline vswap_arena *small_arena(void)
{
    char text[4096];
    const char *directory = getenv("TMPDIR");
    vswap_arena *arena;
    snprintf(text, sizeof text, "ram=8M,swap=%s:256M", directory ? directory : "/tmp");
    CHECK(vswap_create_from_text(text, &arena) == VSWAP_OK);
    return arena;
}

/* How many pages of some memory are in RAM. */
static inline size_t resident_pages(void *memory, size_t bytes)
{
    static unsigned char in_ram[16384];
    size_t before = (uintptr_t)memory % PAGE, pages = (before + bytes + PAGE - 1) / PAGE, count = 0;
    CHECK(pages <= sizeof in_ram);
    CHECK(mincore((unsigned char *)memory - before, pages * PAGE, in_ram) == 0);
    for (size_t page = 0; page < pages; page++)
        count += in_ram[page] & 1;
    return count;
}

/* Has memory leave, and waits until it has, but for so many pages. */
static inline void move_out(vswap_arena *arena, void *memory, size_t bytes, size_t but)
{
    struct timespec pause = {0, 2000000};
    for (int round = 0; round < 20000; round++) {
        if (round % 100 == 0)
            CHECK(vswap_advise(arena, memory, bytes, VSWAP_COLD) == VSWAP_OK);
        if (resident_pages(memory, bytes) <= but)
            return;
        nanosleep(&pause, NULL);
    }
    fprintf(stderr, "%zu pages never left\n", resident_pages(memory, bytes));
    exit(1);
}

#endif
