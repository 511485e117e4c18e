/*
 * DuckDB with its buffers in an arena of vswap: three functions that its allocator consists of, to be preloaded.
 *
 * The library of the Python package exports them, so they can be replaced by name. VSWAP_ARENA is the arena, as
 * vswap_create_from_text takes it. Buffers go to no system call as long as DuckDB spills nothing and reads no file.
 */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

#include <vswap.h>

static pthread_once_t once = PTHREAD_ONCE_INIT;
static vswap_arena *arena;

static void say_figures(void)
{
    vswap_statistics now = VSWAP_STATISTICS_INIT;
    if (arena != NULL && vswap_stats(arena, &now) == VSWAP_OK)
        fprintf(stderr, "arena: %llu MiB at the most, %llu pages out, %llu back from the pool, %llu from areas\n",
                (unsigned long long)now.used_bytes >> 20, (unsigned long long)now.evicted_pages,
                (unsigned long long)now.pool_faults, (unsigned long long)now.area_faults);
}

static void make_arena(void)
{
    const char *text = getenv("VSWAP_ARENA");
    if (text == NULL)
        text = "";
    if (vswap_create_from_text(text, &arena) != VSWAP_OK) {
        fprintf(stderr, "VSWAP_ARENA: %s\n", vswap_error_text());
        abort();
    }
    atexit(say_figures);
}

/* duckdb::Allocator::DefaultAllocate(PrivateAllocatorData *, idx_t) */
void *allocate(void *data, uint64_t bytes)
    __asm__("_ZN6duckdb9Allocator15DefaultAllocateEPNS_20PrivateAllocatorDataEm");
void *allocate(void *data, uint64_t bytes)
{
    (void)data;
    pthread_once(&once, make_arena);
    return vswap_malloc(arena, bytes);
}

/* duckdb::Allocator::DefaultFree(PrivateAllocatorData *, data_ptr_t, idx_t) */
void release(void *data, void *memory, uint64_t bytes)
    __asm__("_ZN6duckdb9Allocator11DefaultFreeEPNS_20PrivateAllocatorDataEPhm");
void release(void *data, void *memory, uint64_t bytes)
{
    (void)data;
    (void)bytes;
    vswap_free(arena, memory);
}

/* duckdb::Allocator::DefaultReallocate(PrivateAllocatorData *, data_ptr_t, idx_t, idx_t) */
void *resize(void *data, void *memory, uint64_t old, uint64_t bytes)
    __asm__("_ZN6duckdb9Allocator17DefaultReallocateEPNS_20PrivateAllocatorDataEPhmm");
void *resize(void *data, void *memory, uint64_t old, uint64_t bytes)
{
    (void)data;
    (void)old;
    return vswap_realloc(arena, memory, bytes);
}
