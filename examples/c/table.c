/*
 * A table of keys and values that is four times as large as the RAM it may take: 8 MiB of RAM, 32 MiB of values.
 *
 * The slots lie in one range, each value is an allocation of its own. Every value is looked up by its key, in another
 * order than it was put in, and compared byte by byte. Then some values are replaced by longer ones, some are deleted,
 * the table is written to a file, and the file is compared too.
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <vswap.h>

#define KEYS 32000u
#define SLOTS (1u << 16)
#define STEP 7919u /* no factor of KEYS: i * STEP % KEYS meets every key once */

struct slot {
    char *value; /* NULL: the slot was never used */
    uint32_t key;
    uint32_t length;
};

static vswap_arena *arena;
static struct slot *slots;

static void fail(const char *what)
{
    fprintf(stderr, "table: %s: %s\n", what, vswap_error_text());
    exit(1);
}

/* A value follows from its key and its version, so it can be verified. About 900 bytes. */
static uint32_t make_value(char *to, uint32_t key, uint32_t version)
{
    uint32_t length = 0, lines = 20 + key % 20 + 4 * version;
    for (uint32_t line = 0; line < lines; line++)
        length += (uint32_t)sprintf(to + length, "key %08x version %u line %02u\n", key * 2654435761u, version, line);
    return length;
}

/* The slot of a key, or the free one where it belongs. */
static struct slot *find(uint32_t key)
{
    uint32_t at = key * 2654435761u % SLOTS;
    while (slots[at].value != NULL && slots[at].key != key)
        at = (at + 1) % SLOTS;
    return &slots[at];
}

static void put(uint32_t key, uint32_t version)
{
    char value[4096];
    struct slot *slot = find(key);
    uint32_t length = make_value(value, key, version);
    char *memory = vswap_realloc(arena, slot->value, length);
    if (memory == NULL)
        fail("no memory for a value");
    memcpy(memory, value, length);
    slot->value = memory;
    slot->key = key;
    slot->length = length;
}

static void check(uint32_t key, uint32_t version)
{
    char value[4096];
    struct slot *slot = find(key);
    uint32_t length = make_value(value, key, version);
    if (slot->value == NULL || slot->length != length || memcmp(slot->value, value, length) != 0) {
        fprintf(stderr, "table: key %u does not have the value that was put there\n", key);
        exit(1);
    }
}

static uint32_t version_of(uint32_t key)
{
    return key % 10 == 0;
}

/* Writes all values by vswap_write: they may be out of memory, and write itself would fail with EFAULT. */
static void write_to(FILE *file)
{
    for (uint32_t key = 0; key < KEYS; key++) {
        struct slot *slot = find(key);
        if (vswap_write(fileno(file), slot->value, slot->length) != (ssize_t)slot->length)
            fail("a value could not be written");
    }
}

static void compare_with(FILE *file)
{
    char value[4096], read[4096];
    rewind(file);
    for (uint32_t key = 0; key < KEYS; key++) {
        uint32_t length = make_value(value, key, version_of(key));
        if (fread(read, 1, length, file) != length || memcmp(read, value, length) != 0) {
            fprintf(stderr, "table: key %u is wrong in the file\n", key);
            exit(1);
        }
    }
}

int main(void)
{
    /* VSWAP says otherwise, for instance VSWAP="ram=16M,codec=zstd". */
    const char *options = getenv("VSWAP") ? getenv("VSWAP") : "ram=8M,swap=/var/tmp:256M";
    vswap_statistics now = VSWAP_STATISTICS_INIT;
    if (vswap_create_from_text(options, &arena) != VSWAP_OK)
        fail("no arena");
    slots = vswap_map(arena, SLOTS * sizeof *slots);
    if (slots == NULL)
        fail("no memory for the slots");

    for (uint32_t key = 0; key < KEYS; key++)
        put(key, 0);
    for (uint32_t at = 0; at < KEYS; at++)
        check((uint32_t)((uint64_t)at * STEP % KEYS), 0);
    for (uint32_t key = 0; key < KEYS; key += 10)
        put(key, 1);
    for (uint32_t key = 0; key < KEYS; key++)
        check(key, version_of(key));

    FILE *file = tmpfile();
    if (file == NULL)
        fail("no file");
    write_to(file);
    compare_with(file);
    fclose(file);

    if (vswap_stats(arena, &now) != VSWAP_OK)
        fail("no figures");
    printf("%u values are as they were put in: %llu MiB in %llu MiB of RAM, %llu pages moved out, %llu brought back\n",
           KEYS, (unsigned long long)now.allocated_bytes >> 20, (unsigned long long)now.used_bytes >> 20,
           (unsigned long long)now.evicted_pages, (unsigned long long)(now.pool_faults + now.area_faults));
    for (uint32_t at = 0; at < SLOTS; at++)
        vswap_free(arena, slots[at].value);
    vswap_unmap(arena, slots, SLOTS * sizeof *slots);
    vswap_destroy(arena);
    return 0;
}
