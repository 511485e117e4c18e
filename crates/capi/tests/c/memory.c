/*
 * Memory as of malloc, and ranges, four times as large as the arena's RAM, by several threads. All that was written is
 * read again, byte by byte.
 */
#include "check.h"

#include <pthread.h>

enum { THREADS = 4, HELD = 600, ROUNDS = 3000 };

static vswap_arena *arena;

struct held {
    unsigned char *memory;
    size_t bytes;
    uint64_t seed;
};

/* Sizes of all classes, of few pages, and some of many. */
static size_t random_size(uint64_t *random)
{
    uint64_t kind = next_random(random) % 8;
    if (kind < 4)
        return next_random(random) % 3200;
    if (kind < 7)
        return next_random(random) % (5 * PAGE);
    return next_random(random) % (30 * PAGE);
}

static void check_held(const struct held *held)
{
    size_t same = same_until(held->memory, held->bytes, held->seed);
    if (same != held->bytes) {
        fprintf(stderr, "%p of %zu bytes is wrong from byte %zu on\n", (void *)held->memory, held->bytes, same);
        exit(1);
    }
    CHECK((uintptr_t)held->memory % 16 == 0);
    CHECK(vswap_usable_size(arena, held->memory) >= held->bytes);
}

static void allocate(struct held *held, uint64_t *random)
{
    held->bytes = random_size(random);
    held->seed = next_random(random);
    switch (next_random(random) % 3) {
    case 0:
        held->memory = vswap_malloc(arena, held->bytes);
        break;
    case 1:
        held->memory = vswap_calloc(arena, 1, held->bytes);
        CHECK(held->memory != NULL && is_zero(held->memory, held->bytes));
        break;
    default: {
        size_t alignment = (size_t)1 << (next_random(random) % 15);
        held->memory = vswap_aligned_alloc(arena, alignment, held->bytes);
        CHECK((uintptr_t)held->memory % alignment == 0);
    }
    }
    CHECK(held->memory != NULL);
    fill(held->memory, held->bytes, held->seed);
}

/* Grows or shrinks: what is kept is as it was. */
static void resize(struct held *held, uint64_t *random)
{
    size_t before = held->bytes;
    size_t bytes = random_size(random);
    unsigned char *moved = vswap_realloc(arena, held->memory, bytes);
    CHECK(moved != NULL);
    size_t kept = before < bytes ? before : bytes;
    CHECK(same_until(moved, kept, held->seed) == kept);
    held->memory = moved;
    held->bytes = bytes;
    fill(moved, bytes, held->seed);
}

static void *work(void *number)
{
    uint64_t random = 1000u * (uint64_t)(uintptr_t)number;
    static struct held all[THREADS][HELD];
    struct held *held = all[(uintptr_t)number];
    for (size_t at = 0; at < HELD; at++)
        allocate(&held[at], &random);
    for (int round = 0; round < ROUNDS; round++) {
        struct held *one = &held[next_random(&random) % HELD];
        check_held(one);
        if (next_random(&random) % 2) {
            resize(one, &random);
        } else {
            vswap_free(arena, one->memory);
            allocate(one, &random);
        }
    }
    for (size_t at = 0; at < HELD; at++) {
        check_held(&held[at]);
        vswap_free(arena, held[at].memory);
    }
    return NULL;
}

static void in_threads(void)
{
    pthread_t threads[THREADS];
    for (uintptr_t number = 0; number < THREADS; number++)
        CHECK(pthread_create(&threads[number], NULL, work, (void *)number) == 0);
    for (size_t number = 0; number < THREADS; number++)
        CHECK(pthread_join(threads[number], NULL) == 0);
}

/* One range of four times the RAM. */
static void in_a_range(void)
{
    size_t bytes = 32 * MIB;
    unsigned char *range = vswap_map(arena, bytes);
    CHECK(range != NULL && (uintptr_t)range % PAGE == 0);
    CHECK(range[0] == 0 && is_zero(range + bytes / 2, 100 * PAGE));
    fill(range, bytes, 77);
    CHECK(same_until(range, bytes, 77) == bytes);
    CHECK(figures(arena).out_pages > 5000 && figures(arena).evicted_pages > 5000);
    CHECK(figures(arena).resident_bytes <= 8 * MIB);
    /* Only pages that lie in the range as a whole are dropped. */
    CHECK(vswap_advise(arena, range + 10, 4 * PAGE, VSWAP_DROP) == VSWAP_OK);
    CHECK(same_until(range, PAGE, 77) == PAGE && is_zero(range + PAGE, 3 * PAGE));
    CHECK(range[4 * PAGE] == content(77, 4 * PAGE));
    CHECK(vswap_advise(arena, range, 50 * PAGE, VSWAP_NEVER_SWAP) == VSWAP_OK);
    CHECK(figures(arena).pinned_bytes == 50 * PAGE);
    CHECK(vswap_advise(arena, range, 50 * PAGE, VSWAP_MAY_SWAP) == VSWAP_OK);
    CHECK(vswap_advise(arena, range, bytes, VSWAP_WILL_NEED) == VSWAP_OK);
    CHECK(vswap_unmap(arena, range, bytes) == VSWAP_OK);
}

/* A block that grows where it is, and one that must move; a large one that becomes a small one. */
static void growing_and_shrinking(void)
{
    unsigned char *block = vswap_malloc(arena, 10 * PAGE);
    CHECK(block != NULL);
    for (size_t pages = 10; pages <= 4000; pages += pages / 2) {
        fill(block, pages * PAGE, 5);
        size_t more = pages + pages / 2;
        block = vswap_realloc(arena, block, more * PAGE);
        CHECK(block != NULL && same_until(block, pages * PAGE, 5) == pages * PAGE);
        CHECK(vswap_usable_size(arena, block) == more * PAGE);
        CHECK(is_zero(block + pages * PAGE, PAGE));
    }
    unsigned char *smaller = vswap_realloc(arena, block, 2 * PAGE);
    CHECK(smaller == block && same_until(block, 2 * PAGE, 5) == 2 * PAGE);
    /* What was cut off reads as zeros when it comes again. */
    block = vswap_realloc(arena, block, 20 * PAGE);
    CHECK(block != NULL && is_zero(block + 2 * PAGE, 18 * PAGE));
    block = vswap_realloc(arena, block, 100);
    CHECK(block != NULL && same_until(block, 100, 5) == 100);
    CHECK(vswap_usable_size(arena, block) == 128);
    block = vswap_realloc(arena, block, 0);
    CHECK(block != NULL);
    vswap_free(arena, block);
}

/* A small object whose memory comes again is zero for calloc alone. */
static void zeros(void)
{
    enum { COUNT = 2000 };
    static unsigned char *held[COUNT];
    for (int round = 0; round < 2; round++) {
        for (size_t at = 0; at < COUNT; at++) {
            held[at] = vswap_calloc(arena, 40, 5);
            CHECK(held[at] != NULL && is_zero(held[at], 200));
            memset(held[at], 0xff, 200);
        }
        for (size_t at = 0; at < COUNT; at++)
            vswap_free(arena, held[at]);
    }
}

/* Pins are counted, hold pages in memory, and end when memory is freed. */
static void pins(void)
{
    unsigned char *range = vswap_map(arena, 200 * PAGE);
    unsigned char *block = vswap_malloc(arena, 20 * PAGE);
    CHECK(range != NULL && block != NULL);
    fill(range, 200 * PAGE, 6);
    move_out(arena, range, 200 * PAGE, 0);
    CHECK(vswap_pin(arena, range + 5, 100 * PAGE) == VSWAP_OK);
    CHECK(vswap_pin(arena, range, 10 * PAGE) == VSWAP_OK);
    CHECK(vswap_pin(arena, range, 0) == VSWAP_OK);
    CHECK(figures(arena).pinned_bytes == 111 * PAGE);
    move_out(arena, range, 200 * PAGE, 101);
    uint64_t faults = figures(arena).pool_faults + figures(arena).area_faults;
    CHECK(same_until(range, 101 * PAGE, 6) == 101 * PAGE);
    CHECK(figures(arena).pool_faults + figures(arena).area_faults == faults);
    CHECK(vswap_unpin(arena, range, 10 * PAGE) == VSWAP_OK);
    CHECK(vswap_unpin(arena, range + 5, 100 * PAGE) == VSWAP_OK);
    CHECK(vswap_unpin(arena, range, PAGE) == VSWAP_ERROR_NOT_PINNED);
    CHECK(figures(arena).pinned_bytes == 0);
    CHECK(vswap_pin(arena, block, 20 * PAGE) == VSWAP_OK);
    CHECK(vswap_pin(arena, range, 7 * PAGE) == VSWAP_OK);
    CHECK(vswap_advise(arena, range, 200 * PAGE, VSWAP_DROP) == VSWAP_ERROR_PINNED);
    CHECK(same_until(range, 7 * PAGE, 6) == 7 * PAGE && is_zero(range + 7 * PAGE, 193 * PAGE));
    vswap_free(arena, block);
    CHECK(vswap_unmap(arena, range, 200 * PAGE) == VSWAP_OK);
    CHECK(figures(arena).pinned_bytes == 0);
}

int main(void)
{
    arena = small_arena();
    growing_and_shrinking();
    zeros();
    pins();
    in_a_range();
    in_threads();
    vswap_statistics now = figures(arena);
    CHECK(now.evicted_pages > 5000 && now.pool_faults + now.area_faults > 1000);
    CHECK(now.damaged_pages == 0 && now.pinned_bytes == 0 && now.raw_pages == 0);
    /* One slab of four pages may stay for each of the 15 sizes of small objects. */
    CHECK(now.allocated_bytes <= 60 * PAGE);
    vswap_destroy(arena);
    puts("all bytes are as they were written");
    return 0;
}
