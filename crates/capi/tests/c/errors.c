/* Every error that a program can provoke, with its code, its text and errno. What fails has changed nothing. */
#include "check.h"

#include <pthread.h>
#include <signal.h>
#include <sys/wait.h>

/* The last call failed with this code, and its text has these words. */
static void expect(int code, const char *words, int line)
{
    if (vswap_error_code() != code || strstr(vswap_error_text(), words) == NULL) {
        fprintf(stderr, "line %d: %d, '%s' is not %d, '%s'\n", line, vswap_error_code(), vswap_error_text(), code,
                words);
        exit(1);
    }
}
#define EXPECT(call, code, words)        \
    do {                                 \
        CHECK((call) == (code));         \
        expect((code), (words), __LINE__); \
    } while (0)
#define EXPECT_NULL(call, number, code, words) \
    do {                                       \
        errno = 0;                             \
        CHECK((call) == NULL);                 \
        CHECK(errno == (number));              \
        expect((code), (words), __LINE__);     \
    } while (0)

static void creating(void)
{
    vswap_arena *arena = (vswap_arena *)&arena;
    vswap_options options = VSWAP_OPTIONS_INIT;
    EXPECT(vswap_create(NULL, &arena), VSWAP_ERROR_ARGUMENT, "options is NULL");
    CHECK(arena == NULL);
    EXPECT(vswap_create(&options, NULL), VSWAP_ERROR_ARGUMENT, "place for the arena is NULL");
    EXPECT(vswap_create(&options, &arena), VSWAP_ERROR_TOO_LITTLE_RAM, "give more");
    options.ram_bytes = 16 * MIB;
    options.size = 8;
    EXPECT(vswap_create(&options, &arena), VSWAP_ERROR_ARGUMENT, "VSWAP_OPTIONS_INIT");
    options.size = 123456789;
    EXPECT(vswap_create(&options, &arena), VSWAP_ERROR_ARGUMENT, "VSWAP_OPTIONS_INIT");
    options.size = sizeof options;
    options.codec = 9;
    EXPECT(vswap_create(&options, &arena), VSWAP_ERROR_ARGUMENT, "VSWAP_LZ4");
    options.codec = VSWAP_ZSTD;
    options.swap_bytes = MIB;
    EXPECT(vswap_create(&options, &arena), VSWAP_ERROR_ARGUMENT, "name a directory");
    options.swap_directory = "/no/such/directory";
    EXPECT(vswap_create(&options, &arena), VSWAP_ERROR_SWAP, "/no/such/directory");
    options.swap_bytes = 0;
    EXPECT(vswap_create(&options, &arena), VSWAP_ERROR_ARGUMENT, "how large");
    options.swap_directory = NULL;
    options.zstd_level = 20;
    EXPECT(vswap_create(&options, &arena), VSWAP_ERROR_ARGUMENT, "'20' is no level of zstd");
    options.codec = VSWAP_LZ4;
    options.zstd_level = 3;
    EXPECT(vswap_create(&options, &arena), VSWAP_ERROR_ARGUMENT, "leave the level 0");
    options.codec = VSWAP_ZSTD;
    options.zstd_level = -3;
    CHECK(vswap_create(&options, &arena) == VSWAP_OK);
    vswap_destroy(arena);

    /* A newer header: more fields, which are fine while they ask for nothing. */
    struct {
        vswap_options known;
        uint64_t unknown;
    } newer = {VSWAP_OPTIONS_INIT, 1};
    newer.known.size = sizeof newer;
    newer.known.ram_bytes = 16 * MIB;
    EXPECT(vswap_create(&newer.known, &arena), VSWAP_ERROR_ARGUMENT, "as new as the header");
    newer.unknown = 0;
    CHECK(vswap_create(&newer.known, &arena) == VSWAP_OK && arena != NULL);
    vswap_destroy(arena);
    /* An older one: fewer fields. What lies behind them is not looked at. */
    options.size = offsetof(vswap_options, capacity_bytes);
    options.pool_bytes = VSWAP_NONE;
    options.codec = 99;
    CHECK(vswap_create(&options, &arena) == VSWAP_OK);
    vswap_destroy(arena);
    vswap_destroy(NULL);
}

static void creating_from_text(void)
{
    static const struct {
        const char *text;
        int code;
        const char *words;
    } wrong[] = {
        {"ram=lots", VSWAP_ERROR_ARGUMENT, "no size"},
        {"ram=16M,size=3", VSWAP_ERROR_ARGUMENT, "'size=3' is no option"},
        {"ram", VSWAP_ERROR_ARGUMENT, "no size"},
        {"", VSWAP_ERROR_ARGUMENT, "no option"},
        {"ram=16M,", VSWAP_ERROR_ARGUMENT, "no option"},
        {"ram=16M,swap=/tmp", VSWAP_ERROR_ARGUMENT, "swap=DIRECTORY:SIZE"},
        {"ram=16M,swap=/no/such:1G", VSWAP_ERROR_SWAP, "/no/such"},
        {"ram=16M,codec=zip", VSWAP_ERROR_ARGUMENT, "lz4, zstd and none"},
        {"ram=16M,codec=zstd:0", VSWAP_ERROR_ARGUMENT, "'0' is no level of zstd"},
        {"ram=1M", VSWAP_ERROR_TOO_LITTLE_RAM, "give more"},
        {"ram=16M,pool=-1", VSWAP_ERROR_ARGUMENT, "no size"},
        {"ram=16M,swap=\xff:1G", VSWAP_ERROR_ARGUMENT, "UTF-8"},
        {"ram=16M,area=/no/such", VSWAP_ERROR_SWAP, "no such file"},
        {"ram=16M,area=/tmp:8M,prio=many", VSWAP_ERROR_ARGUMENT, "0 to 32767"},
        {"ram=16M,area=valkey://:8G,b:6379", VSWAP_ERROR_ARGUMENT, "valkey://"},
        {"ram=16M,prio=5", VSWAP_ERROR_ARGUMENT, "'prio=5' is no option"},
        {"ram=16M,far-copies=3", VSWAP_ERROR_ARGUMENT, "1 or 2"},
    };
    vswap_arena *arena;
    for (size_t at = 0; at < sizeof wrong / sizeof wrong[0]; at++)
        EXPECT(vswap_create_from_text(wrong[at].text, &arena), wrong[at].code, wrong[at].words);
    EXPECT(vswap_create_from_text(NULL, &arena), VSWAP_ERROR_ARGUMENT, "NULL");
    CHECK(vswap_create_from_text("ram=16M, pool=4M, codec=zstd, capacity=64M", &arena) == VSWAP_OK);
    CHECK(figures(arena).ram_bytes == 16 * MIB);
    vswap_destroy(arena);
    CHECK(vswap_create_from_text("ram=16M,codec=zstd:-1", &arena) == VSWAP_OK);
    vswap_destroy(arena);
}

static void allocating(vswap_arena *arena)
{
    EXPECT_NULL(vswap_malloc(NULL, 1), EINVAL, VSWAP_ERROR_ARGUMENT, "arena is NULL");
    EXPECT_NULL(vswap_malloc(arena, SIZE_MAX), ENOMEM, VSWAP_ERROR_NO_ADDRESSES, "ask for less");
    EXPECT_NULL(vswap_malloc(arena, (size_t)1 << 40), ENOMEM, VSWAP_ERROR_NO_ADDRESSES, "capacity");
    EXPECT_NULL(vswap_calloc(arena, SIZE_MAX / 2, 3), ENOMEM, VSWAP_ERROR_NO_ADDRESSES, "times 3");
    EXPECT_NULL(vswap_aligned_alloc(arena, 24, 100), EINVAL, VSWAP_ERROR_ARGUMENT, "power of two");
    EXPECT_NULL(vswap_aligned_alloc(arena, 0, 100), EINVAL, VSWAP_ERROR_ARGUMENT, "power of two");
    EXPECT_NULL(vswap_aligned_alloc(arena, (size_t)1 << 62, 100), ENOMEM, VSWAP_ERROR_NO_ADDRESSES, "");
    EXPECT_NULL(vswap_map(arena, 0), EINVAL, VSWAP_ERROR_ARGUMENT, "1 or more");
    EXPECT_NULL(vswap_map(arena, SIZE_MAX), ENOMEM, VSWAP_ERROR_NO_ADDRESSES, "");
    unsigned char *memory = vswap_malloc(arena, 5000);
    CHECK(memory != NULL);
    fill(memory, 5000, 4);
    EXPECT_NULL(vswap_realloc(arena, memory, SIZE_MAX), ENOMEM, VSWAP_ERROR_NO_ADDRESSES, "");
    EXPECT_NULL(vswap_realloc(arena, memory, (size_t)1 << 40), ENOMEM, VSWAP_ERROR_NO_ADDRESSES, "");
    CHECK(same_until(memory, 5000, 4) == 5000);
    CHECK(vswap_usable_size(arena, NULL) == 0);
    CHECK(vswap_usable_size(arena, memory + 16) == 0);
    expect(VSWAP_ERROR_NOT_ALLOCATED, "inside of one", __LINE__);
    CHECK(vswap_usable_size(arena, &arena) == 0);
    expect(VSWAP_ERROR_NOT_OURS, "not the arena's", __LINE__);
    vswap_free(arena, memory);
    vswap_free(arena, NULL);
    vswap_free(NULL, NULL);
    void *empty = vswap_malloc(arena, 0), *other = vswap_realloc(arena, NULL, 0);
    CHECK(empty != NULL && other != NULL && empty != other);
    vswap_free(arena, empty);
    vswap_free(arena, other);
}

static void ranges(vswap_arena *arena)
{
    unsigned char *range = vswap_map(arena, 2000 * PAGE), *object = vswap_malloc(arena, 100);
    int local = 0;
    CHECK(range != NULL && object != NULL);
    EXPECT(vswap_pin(arena, range, 2000 * PAGE), VSWAP_ERROR_PIN_LIMIT, "can be pinned");
    EXPECT(vswap_pin(arena, range, 2001 * PAGE), VSWAP_ERROR_NOT_OURS, "not the arena's");
    EXPECT(vswap_pin(arena, range, SIZE_MAX), VSWAP_ERROR_NO_ADDRESSES, "ask for less");
    EXPECT(vswap_pin(arena, &local, sizeof local), VSWAP_ERROR_NOT_OURS, "not the arena's");
    EXPECT(vswap_pin(NULL, range, PAGE), VSWAP_ERROR_ARGUMENT, "arena is NULL");
    EXPECT(vswap_unpin(arena, range, PAGE), VSWAP_ERROR_NOT_PINNED, "not pinned");
    EXPECT(vswap_advise(arena, range, PAGE, 17), VSWAP_ERROR_ARGUMENT, "advice 17");
    EXPECT(vswap_advise(arena, range, 2000 * PAGE, VSWAP_NEVER_SWAP), VSWAP_ERROR_PIN_LIMIT, "");
    EXPECT(vswap_advise(arena, &local, sizeof local, VSWAP_COLD), VSWAP_ERROR_NOT_OURS, "");
    CHECK(vswap_advise(arena, object, 100, VSWAP_DROP) == VSWAP_OK);
    EXPECT(vswap_unmap(arena, range, 1000 * PAGE), VSWAP_ERROR_NOT_ALLOCATED, "no allocation begins");
    EXPECT(vswap_unmap(arena, range + PAGE, 1999 * PAGE), VSWAP_ERROR_NOT_ALLOCATED, "");
    EXPECT(vswap_unmap(arena, range + 1, 2000 * PAGE), VSWAP_ERROR_NOT_ALLOCATED, "");
    EXPECT(vswap_unmap(arena, object, 100), VSWAP_ERROR_NOT_ALLOCATED, "");
    EXPECT(vswap_unmap(arena, &local, PAGE), VSWAP_ERROR_NOT_OURS, "");
    CHECK(vswap_unmap(arena, range, 2000 * PAGE - 5) == VSWAP_OK);
    EXPECT(vswap_unmap(arena, range, 2000 * PAGE), VSWAP_ERROR_NOT_ALLOCATED, "freed before");
    EXPECT(vswap_pin(arena, range, PAGE), VSWAP_ERROR_NOT_OURS, "");
    vswap_free(arena, object);
    CHECK(figures(arena).pinned_bytes == 0);
}

static void statistics(vswap_arena *arena)
{
    vswap_statistics now = VSWAP_STATISTICS_INIT;
    EXPECT(vswap_stats(arena, NULL), VSWAP_ERROR_ARGUMENT, "NULL");
    EXPECT(vswap_stats(NULL, &now), VSWAP_ERROR_ARGUMENT, "arena is NULL");
    now.size = 0;
    EXPECT(vswap_stats(arena, &now), VSWAP_ERROR_ARGUMENT, "VSWAP_STATISTICS_INIT");
    /* An older header: what is behind its end stays. A newer one: what is not known is 0. */
    now.size = offsetof(vswap_statistics, used_bytes);
    now.used_bytes = 5;
    CHECK(vswap_stats(arena, &now) == VSWAP_OK && now.used_bytes == 5 && now.ram_bytes > 0);
    struct {
        vswap_statistics known;
        uint64_t unknown;
    } newer = {VSWAP_STATISTICS_INIT, 7};
    newer.known.size = sizeof newer;
    CHECK(vswap_stats(arena, &newer.known) == VSWAP_OK && newer.unknown == 0);
    CHECK(newer.known.size == sizeof newer && newer.known.used_bytes > 0);
}

/* Noise, until the arena says that it is full; then there is room again. */
static void full(void)
{
    enum { MOST = 10000 };
    static unsigned char *held[MOST];
    struct timespec pause = {0, 10000000};
    vswap_arena *arena;
    uint64_t random = 1;
    size_t count = 0;
    CHECK(vswap_create_from_text("ram=8M,pool=1M", &arena) == VSWAP_OK);
    while (count < MOST && (held[count] = vswap_malloc(arena, 2 * PAGE)) != NULL) {
        for (size_t at = 0; at < 2 * PAGE; at += 8)
            *(uint64_t *)(void *)&held[count][at] = next_random(&random);
        count++;
        /* Slowly, so that it says so in time. */
        if (count > 900)
            nanosleep(&pause, NULL);
    }
    CHECK(count < MOST);
    expect(VSWAP_ERROR_FULL, "larger swap area", __LINE__);
    EXPECT_NULL(vswap_malloc(arena, PAGE), ENOMEM, VSWAP_ERROR_FULL, "free memory");
    EXPECT_NULL(vswap_map(arena, PAGE), ENOMEM, VSWAP_ERROR_FULL, "free memory");
    while (count > 0)
        vswap_free(arena, held[--count]);
    CHECK(vswap_malloc(arena, PAGE) != NULL);
    vswap_destroy(arena);
}

/* How a child ended that ran this. */
static int in_child(int (*run)(vswap_arena *, unsigned char *), vswap_arena *arena, unsigned char *memory)
{
    int status = 0;
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0)
        _exit(run(arena, memory));
    CHECK(waitpid(child, &status, 0) == child);
    return status;
}

static int touch(vswap_arena *arena, unsigned char *memory)
{
    (void)arena;
    return *(volatile unsigned char *)memory;
}

static int call(vswap_arena *arena, unsigned char *memory)
{
    vswap_statistics now = VSWAP_STATISTICS_INIT;
    EXPECT_NULL(vswap_malloc(arena, 10), ENOMEM, VSWAP_ERROR_FORKED, "child of a fork");
    EXPECT_NULL(vswap_map(arena, 10), ENOMEM, VSWAP_ERROR_FORKED, "child of a fork");
    EXPECT_NULL(vswap_realloc(arena, memory, 10), ENOMEM, VSWAP_ERROR_FORKED, "child of a fork");
    EXPECT(vswap_pin(arena, memory, 10), VSWAP_ERROR_FORKED, "child of a fork");
    EXPECT(vswap_unpin(arena, memory, 10), VSWAP_ERROR_FORKED, "child of a fork");
    EXPECT(vswap_advise(arena, memory, 10, VSWAP_COLD), VSWAP_ERROR_FORKED, "child of a fork");
    EXPECT(vswap_stats(arena, &now), VSWAP_ERROR_FORKED, "child of a fork");
    errno = 0;
    CHECK(vswap_write(1, memory, 10) == -1 && errno == EFAULT);
    expect(VSWAP_ERROR_FORKED, "child of a fork", __LINE__);
    vswap_free(arena, memory);
    vswap_free(arena, memory);
    vswap_destroy(arena);
    return 0;
}

/* An arena of the child's own, at the same addresses if the kernel likes. */
static int own(vswap_arena *arena, unsigned char *memory)
{
    vswap_arena *mine = small_arena();
    unsigned char *range = vswap_map(mine, 32 * MIB);
    (void)memory;
    CHECK(range != NULL);
    fill(range, 32 * MIB, 31);
    CHECK(same_until(range, 32 * MIB, 31) == 32 * MIB);
    int ends[2];
    CHECK(pipe(ends) == 0 && vswap_write(ends[1], range, 10 * PAGE) == 10 * PAGE);
    CHECK(vswap_malloc(arena, 1) == NULL);
    expect(VSWAP_ERROR_FORKED, "", __LINE__);
    vswap_destroy(mine);
    return 0;
}

static void forks(vswap_arena *arena)
{
    unsigned char *memory = vswap_malloc(arena, 100 * PAGE);
    CHECK(memory != NULL);
    fill(memory, 100 * PAGE, 8);
    move_out(arena, memory, 100 * PAGE, 0);
    CHECK(memory[0] == content(8, 0));
    for (size_t page = 0; page < 2; page++) {
        int status = in_child(touch, arena, memory + page * 50 * PAGE);
        CHECK(WIFSIGNALED(status) && WTERMSIG(status) == SIGSEGV);
    }
    CHECK(in_child(call, arena, memory) == 0);
    CHECK(in_child(own, arena, memory) == 0);
    CHECK(same_until(memory, 100 * PAGE, 8) == 100 * PAGE);
    vswap_free(arena, memory);
}

static void *without_errors(void *unused)
{
    (void)unused;
    CHECK(vswap_error_code() == VSWAP_OK && vswap_error_text()[0] == '\0');
    return NULL;
}

/* The last error is a thread's own. */
static void threads(void)
{
    pthread_t thread;
    EXPECT(vswap_create(NULL, NULL), VSWAP_ERROR_ARGUMENT, "NULL");
    CHECK(pthread_create(&thread, NULL, without_errors, NULL) == 0);
    CHECK(pthread_join(thread, NULL) == 0);
    expect(VSWAP_ERROR_ARGUMENT, "NULL", __LINE__);
}

int main(void)
{
    CHECK(strlen(vswap_version()) >= 5);
    creating();
    creating_from_text();
    threads();
    vswap_arena *arena = small_arena();
    allocating(arena);
    ranges(arena);
    statistics(arena);
    forks(arena);
    vswap_destroy(arena);
    full();
    puts("all errors are as the header says");
    return 0;
}
