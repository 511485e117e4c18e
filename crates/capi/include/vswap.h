/*
 * vswap.h - memory larger than RAM for a program that links libvswap.
 *
 * An arena is memory whose pages leave RAM when the arena's limit is reached, compressed into a pool or on to a file,
 * and come back when they are touched. Pages come back in the thread that touches them. No privilege and no daemon is
 * needed: Linux 5.11 or newer is. docs/library.md of vswap has an example, section "From C".
 *
 *     vswap_options options = VSWAP_OPTIONS_INIT;
 *     vswap_arena *arena;
 *     options.ram_bytes = 64 << 20;
 *     options.swap_directory = "/var/tmp";
 *     options.swap_bytes = 1 << 30;
 *     if (vswap_create(&options, &arena) != VSWAP_OK) {
 *         fprintf(stderr, "%s\n", vswap_error_text());
 *         return 1;
 *     }
 *     char *text = vswap_malloc(arena, 256 << 20);
 *
 * UNITS. Sizes are bytes, unless a name says pages. A page has 4096 bytes.
 *
 * ERRORS. Calls that return int return VSWAP_OK, which is 0, or one of enum vswap_error. Calls that return memory
 * return NULL, and set errno: EINVAL for wrong arguments, else ENOMEM. The calls of the system (vswap_read and so on)
 * return -1 and set errno. vswap_error_code and vswap_error_text say more of the last error of the calling thread: what
 * was wrong, what is expected, what to do. What an error is returned for has changed nothing, unless a call says
 * otherwise.
 *
 * THREADS. Every call may be made by any thread, and by many at the same time, for the same arena too. Only
 * vswap_destroy must be the last call for its arena. No call may be made in a handler of a signal.
 *
 * WHAT A PROGRAM MUST KNOW OF ITS MEMORY.
 * - A system call that is given a page that is out fails with EFAULT, also if the page was never touched. Use the calls
 *   at the end of this file, or vswap_pin. That goes for libraries that pass memory on, such as stdio: fwrite from an
 *   arena copies small data through its buffer, and passes large data to write as it is.
 * - The child of a fork does not have the memory. A touch ends the child by SIGSEGV. Calls return VSWAP_ERROR_FORKED
 *   there; vswap_free and vswap_destroy do nothing. The child may make an arena of its own, and may exec.
 * - The library handles SIGBUS, and calls the handler that was there before for what is not its own. Whoever installs a
 *   handler later must call the library's. No thread may block SIGBUS.
 * - When RAM, pool and swap area are full, allocating fails with VSWAP_ERROR_FULL. A touch that finds no room cannot
 *   fail: it says so on standard error and raises SIGBUS. So does a touch of a page whose content is lost.
 * - Do not use mlock, munmap, mremap, mprotect or madvise on the memory. Stacks cannot lie in an arena.
 */
#ifndef VSWAP_H
#define VSWAP_H

#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>
#include <sys/types.h>
#include <sys/uio.h>

#if defined(__GNUC__)
#define VSWAP_MALLOC_ __attribute__((malloc, warn_unused_result))
#define VSWAP_CHECKED_ __attribute__((warn_unused_result))
#else
#define VSWAP_MALLOC_
#define VSWAP_CHECKED_
#endif

#ifdef __cplusplus
extern "C" {
#endif

/* An arena. Its content is the library's. */
typedef struct vswap_arena vswap_arena;

/* What a call that returns int returns, and vswap_error_code. Later versions may have more. */
enum vswap_error {
    VSWAP_OK = 0,
    VSWAP_ERROR_ARGUMENT = 1,       /* an argument that cannot be: NULL, no size, an unknown number */
    VSWAP_ERROR_TOO_LITTLE_RAM = 2, /* less than 8 MiB */
    VSWAP_ERROR_SYSTEM = 3,         /* the kernel gives no userfaultfd, memory or thread */
    VSWAP_ERROR_SWAP = 4,           /* no swap area can be made there */
    VSWAP_ERROR_NO_ADDRESSES = 5,   /* not so many addresses are free in one piece */
    VSWAP_ERROR_FULL = 6,           /* RAM, pool and swap area are full */
    VSWAP_ERROR_PIN_LIMIT = 7,      /* so much cannot be kept in RAM at the same time */
    VSWAP_ERROR_NOT_OURS = 8,       /* the memory was not allocated from this arena */
    VSWAP_ERROR_NOT_ALLOCATED = 9,  /* no allocation that is in use begins there */
    VSWAP_ERROR_PINNED = 10,        /* pinned memory cannot be dropped */
    VSWAP_ERROR_NOT_PINNED = 11,    /* some of the memory had no pin to end */
    VSWAP_ERROR_LOST = 12,          /* the content of a page is damaged, or cannot be read from its area */
    VSWAP_ERROR_FORKED = 13         /* this is the child of a fork, and the arena is its parent's */
};

/* The code of the last error of the calling thread, VSWAP_OK if there was none. */
int vswap_error_code(void);

/* Its text, in English, without an end of line. Never NULL. It stays as it is until the thread's next error. */
const char *vswap_error_text(void);

/* The version of the library, such as "0.1.0". */
const char *vswap_version(void);

/* ---------------------------------------------------------------------------------------------------- arenas --- */

/* How pages are compressed. */
enum vswap_codec {
    VSWAP_AUTO = 0,        /* fast, and densely what would not fit otherwise */
    VSWAP_LZ4 = 1,         /* fast */
    VSWAP_ZSTD = 2,        /* dense */
    VSWAP_UNCOMPRESSED = 3 /* as they are */
};

/* No pool at all, for pool_bytes. */
#define VSWAP_NONE UINT64_MAX

/* What an arena is to be like. In every field but size and ram_bytes 0 asks for the usual. */
typedef struct vswap_options {
    /* sizeof(vswap_options), which VSWAP_OPTIONS_INIT sets: later versions have more fields. */
    size_t size;
    /* RAM that the arena may take: pages in memory, pool and tables together. At least 8 MiB. */
    uint64_t ram_bytes;
    /* The most of it that the compressed pool may take. Usually half where there is a swap area, else seven eighths. */
    uint64_t pool_bytes;
    /* Addresses to reserve: the most that can be allocated. Usually 16 times the RAM, and the swap area. */
    uint64_t capacity_bytes;
    /* A directory for a swap area: an encrypted file without a name. NULL is no swap area. Copied. */
    const char *swap_directory;
    /* How large that file may grow. It takes the disk's space as it is used. */
    uint64_t swap_bytes;
    /* One of enum vswap_codec. */
    int codec;
    /* With VSWAP_ZSTD: -7 to -1 is faster, 2 to 19 denser and slower. Usually 1. */
    int zstd_level;
    /* More swap areas, each as `vswap run --swap` takes it, one in a line, with \n between: a directory for a private
     * file, a file or device that `vswap mkswap` has prepared, or a store on other machines. NULL is no more. Copied.
     *
     *     "/dev/vdb,prio=5,tier=fast\n/var/tmp:8G,prio=1,tier=slow\nvalkey://far:6379:32G,tier=far"
     */
    const char *areas;
    /* A directory for a private file in which pages of stores are written as well. NULL is none. Copied. */
    const char *far_backup;
    /* On how many nodes a store keeps each page: 1 or 2. Usually 1. */
    int far_copies;
} vswap_options;

#define VSWAP_OPTIONS_INIT { sizeof(vswap_options), 0, 0, 0, NULL, 0, VSWAP_AUTO, 0, NULL, NULL, 0 }

/*
 * Makes an arena, starts its threads, and writes its handle to *arena, or NULL if that fails. A process may have 64.
 * Errors: ARGUMENT, TOO_LITTLE_RAM, SYSTEM, SWAP.
 */
VSWAP_CHECKED_ int vswap_create(const vswap_options *options, vswap_arena **arena);

/*
 * The same from a text, for a configuration or a variable of the environment: words with commas between. Sizes are
 * numbers of bytes or have K, M, G or T behind them, in powers of 1024. swap and area may be given several times. What
 * is behind the last colon of swap is its size. area is as a line of areas above, with its options behind it.
 *
 *     ram=512M,pool=128M,swap=/var/tmp:2G,codec=auto|lz4|zstd|zstd:LEVEL|none,capacity=8G
 *     ram=512M,area=/dev/vdb,prio=5,tier=fast,area=valkey://far:6379:32G,tier=far,far-copies=2,far-backup=/var/tmp
 */
VSWAP_CHECKED_ int vswap_create_from_text(const char *text, vswap_arena **arena);

/*
 * Writes another handle of the same arena to *group, or NULL if that fails. What is allocated by it belongs to the
 * group of this name, which may have only so much in pool and swap areas. NAME/SUB is a group inside of NAME, whose
 * limits hold for both together. limits is a text, NULL or "" for none:
 *
 *     swap-max=1G,pool-max=64M,tier-max=fast=256M,tier-max=far=0,no-writeback
 *
 * no-writeback keeps its pages out of all areas. If there is such a group it has these limits from now on. A page that
 * the limits leave no room for stays in RAM. Memory may be passed to calls with any handle of its arena, and is freed
 * with any. Each handle is given up by vswap_destroy; the arena ends, with all memory, with the last one.
 * Errors: ARGUMENT, FORKED.
 */
VSWAP_CHECKED_ int vswap_group(vswap_arena *arena, const char *name, const char *limits, vswap_arena **group);

/*
 * Writes how many bytes the group of a handle has now in the pool, as they are packed, and in swap areas, those inside
 * of it included. Either place may be NULL. Errors: ARGUMENT for a handle that is no group's, FORKED.
 */
int vswap_group_usage(vswap_arena *group, uint64_t *pool_bytes, uint64_t *swap_bytes);

/*
 * Gives a handle up, and with the last one ends the arena and all memory of it. Nobody may use it any more, and no
 * other call with it may be under way. NULL is fine. In the child of a fork it does nothing.
 */
void vswap_destroy(vswap_arena *arena);

/* --------------------------------------------------------------------------------------- memory as of malloc --- */

/*
 * As malloc, calloc and aligned_alloc. All memory is aligned to 16 bytes. 0 bytes give an address that can be freed.
 * From 3073 bytes on an allocation takes whole pages, which are zero when nobody has written to them, and cost no RAM
 * before they are touched. An alignment is any power of two; the size need not be a multiple of it.
 */
VSWAP_MALLOC_ void *vswap_malloc(vswap_arena *arena, size_t bytes);
VSWAP_MALLOC_ void *vswap_calloc(vswap_arena *arena, size_t count, size_t bytes);
VSWAP_MALLOC_ void *vswap_aligned_alloc(vswap_arena *arena, size_t alignment, size_t bytes);

/*
 * As realloc. The content is kept up to the smaller size; more than 16 bytes of alignment are not. NULL is as
 * vswap_malloc. 0 bytes do not free: they leave an address that can be freed. If it fails the memory is as it was.
 * Memory that is not in use, or not of this arena, ends the process, as with vswap_free.
 */
VSWAP_CHECKED_ void *vswap_realloc(vswap_arena *arena, void *memory, size_t bytes);

/*
 * As free. It brings no page back. Pins of memory that takes whole pages end with it. Memory that was freed before,
 * that is not of this arena, or an address inside of an allocation, ends the process with a message and SIGABRT: going
 * on would hand out memory that somebody uses.
 */
void vswap_free(vswap_arena *arena, void *memory);

/* How many bytes can be used there: as many as were asked for, or more. 0 for NULL and, with an error, for what is no
 * allocation. */
size_t vswap_usable_size(vswap_arena *arena, const void *memory);

/* ----------------------------------------------------------------------------------------------------- ranges --- */

/* Whole pages for so many bytes, aligned to a page. They are zero, and cost no RAM before they are touched. */
VSWAP_MALLOC_ void *vswap_map(vswap_arena *arena, size_t bytes);

/*
 * Gives back what vswap_map gave, as a whole: the same address, and as many pages. Pins end with it.
 * Errors: NOT_OURS, NOT_ALLOCATED, FORKED.
 */
int vswap_unmap(vswap_arena *arena, void *memory, size_t bytes);

/*
 * Keeps the pages of a range in RAM, writable, until they are unpinned or freed. Pins are counted: a page stays until
 * it is unpinned as often as it was pinned. The range must lie in one allocation. How much can be pinned depends on
 * ram_bytes, less what the pool holds now: pin little, and not for long.
 * Errors: PIN_LIMIT, FULL, LOST, NOT_OURS, FORKED.
 */
VSWAP_CHECKED_ int vswap_pin(vswap_arena *arena, const void *memory, size_t bytes);

/* Ends one pin of each page. Errors: NOT_PINNED, when the other pages are unpinned all the same; NOT_OURS, FORKED. */
int vswap_unpin(vswap_arena *arena, const void *memory, size_t bytes);

/* What a program knows of a range. */
enum vswap_advice {
    VSWAP_WILL_NEED = 0,  /* needed soon: bring back as much as there is room for, without moving anything out */
    VSWAP_COLD = 1,       /* not needed for a while: move it out soon, in the background */
    VSWAP_NEVER_SWAP = 2, /* bring it back and never move it out, until MAY_SWAP or free; counts as pinned */
    VSWAP_MAY_SWAP = 3,   /* take NEVER_SWAP back */
    VSWAP_DROP = 4        /* give the content up of pages that lie in the range as a whole: they read as zeros */
};

/*
 * Says something of the pages of a range, which must lie in one allocation.
 * Errors: ARGUMENT, NOT_OURS, FORKED; PIN_LIMIT, FULL, LOST (NEVER_SWAP); LOST (WILL_NEED); PINNED (DROP), when the
 * pages that are not pinned are dropped all the same.
 */
int vswap_advise(vswap_arena *arena, void *memory, size_t bytes, int advice);

/* ----------------------------------------------------------------------------------------------------- figures --- */

/* Figures of an arena. Bytes and pages are those of now; the rest is counted since the arena was made. */
typedef struct vswap_statistics {
    /* sizeof(vswap_statistics), which VSWAP_STATISTICS_INIT sets: later versions have more fields. */
    uint64_t size;
    uint64_t ram_bytes;       /* RAM that it may take now: less than was asked for, if a run around it has less */
    uint64_t used_bytes;      /* RAM that it takes at the most: pages in memory, pool, tables */
    uint64_t allocated_bytes; /* pages that are allocated, wherever they are */
    uint64_t resident_bytes;  /* of these, in memory */
    uint64_t pinned_bytes;    /* counted as not to leave; a page that is pinned twice counts twice */
    uint64_t pool_bytes;      /* memory of the pool */
    uint64_t out_pages;       /* pages in the pool or a swap area, those included that are in memory as well */
    uint64_t area_pages;      /* of these, in swap areas */
    uint64_t zero_faults;     /* touches of pages that were new */
    uint64_t pool_faults;     /* pages that came back from the pool */
    uint64_t area_faults;     /* pages that came back from a swap area */
    uint64_t write_faults;    /* writes that found a page protected */
    uint64_t evicted_pages;   /* pages that were moved out */
    uint64_t clean_drops;     /* of these, without being compressed or written: a copy was there */
    uint64_t cancelled_pages; /* pages that stayed because they were written to while they were leaving */
    uint64_t damaged_pages;   /* stored pages that were found damaged */
    uint64_t raw_pages;       /* pages that stay in memory: they do not compress, and there is no area for them */
    uint64_t pages_brought_along; /* pages that came along with one that was touched */
    uint64_t packed_again_pages;  /* pages of the pool that were packed again, more densely */
} vswap_statistics;

#define VSWAP_STATISTICS_INIT { sizeof(vswap_statistics), 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0 }

/* Writes the figures. Fields that the library does not know become 0. Errors: ARGUMENT, FORKED. */
int vswap_stats(vswap_arena *arena, vswap_statistics *statistics);

/* ------------------------------------------------------------------------------------- calls of the system --- */

/*
 * The calls of the same names, for memory of any arena of the process, or of none. What lies in an arena is pinned
 * during the call. They set errno as those of the system do, and beside that: ENOMEM if the arena is full or cannot pin
 * so much, EIO if a page is lost, EFAULT in the child of a fork. They are not points of cancellation, and may not be
 * called in handlers of signals.
 *
 * At most 1 MiB is pinned at a time, less where the arena cannot pin that. A larger range goes in parts:
 * - Files and block devices: part by part, as one call to the caller. Others who write to the file meanwhile may come
 *   in between two parts.
 * - Reading from a pipe, a terminal or a socket of a stream: one part, so the count may be shorter than what was there,
 *   as POSIX allows. With MSG_WAITALL part by part.
 * - Writing to these: part by part. If a part fails the count of the bytes before is returned.
 * - Sockets of messages, control data, and flags other than MSG_DONTWAIT, MSG_NOSIGNAL, MSG_MORE (MSG_WAITALL): in one
 *   call with all of it pinned, or ENOMEM. A message is never cut.
 */
ssize_t vswap_read(int fd, void *memory, size_t bytes);
ssize_t vswap_write(int fd, const void *memory, size_t bytes);
ssize_t vswap_pread(int fd, void *memory, size_t bytes, off_t offset);
ssize_t vswap_pwrite(int fd, const void *memory, size_t bytes, off_t offset);
ssize_t vswap_readv(int fd, const struct iovec *pieces, int count);
ssize_t vswap_writev(int fd, const struct iovec *pieces, int count);
ssize_t vswap_preadv(int fd, const struct iovec *pieces, int count, off_t offset);
ssize_t vswap_pwritev(int fd, const struct iovec *pieces, int count, off_t offset);
ssize_t vswap_recv(int fd, void *memory, size_t bytes, int flags);
ssize_t vswap_send(int fd, const void *memory, size_t bytes, int flags);
ssize_t vswap_recvmsg(int fd, struct msghdr *message, int flags);
ssize_t vswap_sendmsg(int fd, const struct msghdr *message, int flags);

#ifdef __cplusplus
}
#endif

#endif
