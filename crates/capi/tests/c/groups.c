/* Areas in tiers, and groups that may have only so much of them: what goes where, and every byte of it. */
#include "check.h"

static uint64_t swap_bytes(vswap_arena *group)
{
    uint64_t bytes = 0;
    CHECK(vswap_group_usage(group, NULL, &bytes) == VSWAP_OK);
    return bytes;
}

static void mistakes(vswap_arena *arena)
{
    vswap_arena *group = arena;
    CHECK(vswap_group(arena, "jobs//x", NULL, &group) == VSWAP_ERROR_ARGUMENT && group == NULL);
    CHECK(strstr(vswap_error_text(), "empty part"));
    CHECK(vswap_group(arena, "jobs", "swap=1G", &group) == VSWAP_ERROR_ARGUMENT);
    CHECK(strstr(vswap_error_text(), "swap-max=SIZE"));
    CHECK(vswap_group(arena, "jobs", "tier-max=far=0", &group) == VSWAP_ERROR_ARGUMENT);
    CHECK(strstr(vswap_error_text(), "default, fast, slow"));
    CHECK(vswap_group(arena, NULL, NULL, &group) == VSWAP_ERROR_ARGUMENT);
    CHECK(vswap_group(NULL, "jobs", NULL, &group) == VSWAP_ERROR_ARGUMENT);
    CHECK(vswap_group(arena, "jobs", NULL, NULL) == VSWAP_ERROR_ARGUMENT);
    CHECK(vswap_group_usage(arena, NULL, NULL) == VSWAP_ERROR_ARGUMENT);
    CHECK(strstr(vswap_error_text(), "vswap_group has made"));
}

int main(void)
{
    char areas[4096];
    const char *directory = getenv("TMPDIR") ? getenv("TMPDIR") : "/tmp";
    vswap_options options = VSWAP_OPTIONS_INIT;
    vswap_arena *arena, *inside, *slow;

    snprintf(areas, sizeof areas, "%s:64M,prio=5,tier=fast\n\n %s:64M,prio=1,tier=slow\n", directory, directory);
    options.ram_bytes = 16 * MIB;
    options.pool_bytes = 4 * MIB;
    options.areas = areas;
    options.far_copies = 3;
    CHECK(vswap_create(&options, &arena) == VSWAP_ERROR_ARGUMENT);
    options.far_copies = 0;
    CHECK(vswap_create(&options, &arena) == VSWAP_OK);
    mistakes(arena);

    CHECK(vswap_group(arena, "jobs/inside", "no-writeback", &inside) == VSWAP_OK);
    CHECK(vswap_group(arena, "jobs/slow", "tier-max=fast=0, swap-max=16M", &slow) == VSWAP_OK);
    vswap_arena *handles[] = {arena, inside, slow};
    size_t sizes[] = {24 * MIB, 4 * MIB, 24 * MIB};
    unsigned char *memory[3];
    for (size_t at = 0; at < 3; at++)
        CHECK((memory[at] = vswap_malloc(handles[at], sizes[at])) != NULL);
    for (uint64_t seed = 1; seed < 4; seed++) {
        for (size_t at = 0; at < 3; at++)
            fill(memory[at], sizes[at], seed * 10 + at);
        for (size_t at = 0; at < 3; at++)
            CHECK(same_until(memory[at], sizes[at], seed * 10 + at) == sizes[at]);
        CHECK(swap_bytes(inside) == 0 && swap_bytes(slow) <= 16 * MIB);
    }
    CHECK(swap_bytes(slow) > 0 && figures(slow).area_faults > 0);

    /* A handle that is given up leaves the arena, and memory is freed with any handle. */
    vswap_destroy(inside);
    CHECK(same_until(memory[1], sizes[1], 31) == sizes[1]);
    vswap_free(slow, memory[1]);
    CHECK((memory[2] = vswap_realloc(arena, memory[2], 2 * sizes[2])) != NULL);
    CHECK(same_until(memory[2], sizes[2], 32) == sizes[2]);
    vswap_destroy(arena);
    CHECK(same_until(memory[0], sizes[0], 30) == sizes[0]);
    vswap_destroy(slow);
    puts("all groups had what they may, and all bytes are as they were written");
    return 0;
}
