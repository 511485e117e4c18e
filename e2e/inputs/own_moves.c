// Moves pages of its memory, a few at a time, with UFFDIO_MOVE into a range of its own userfaultfd, and checks both.
//
// usage: own_moves SECONDS. Prints how many moves were done, found a page missing (ENOENT) and failed otherwise. What
// was moved must have arrived and must be gone where it was. Exits with 1 and says so if a byte is wrong, and with 3
// where the kernel cannot do it.
#include <errno.h>
#include <fcntl.h>
#include <linux/userfaultfd.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#ifndef UFFDIO_MOVE
struct uffdio_move {
    __u64 dst, src, len, mode;
    __s64 move;
};
#define UFFDIO_MOVE _IOWR(UFFDIO, 0x05, struct uffdio_move)
#endif
#define MOVE_FEATURE (1ULL << 16)

enum { PAGE = 4096, WORDS = PAGE / 8, PAGES = 4096, RUN = 4 };

static uint64_t content(uint64_t page, uint64_t version, uint64_t at) {
    uint64_t x = (page << 32 | version << 12 | at) + 0x9e3779b97f4a7c15;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
    return at % 4 ? version << 20 | page | 1ULL << 63 : (x ^ (x >> 27)) | 1;
}

static void wrong(const char *where, uint64_t page, uint64_t at, uint64_t expected, uint64_t found) {
    printf("WRONG %s: page %lu word %lu: %#lx, not %#lx\n", where, page, at, found, expected);
    fflush(stdout);
    _exit(1);
}

static void check(const char *where, volatile uint64_t *words, uint64_t page, uint64_t version) {
    for (uint64_t at = 0; at < WORDS; at++) {
        uint64_t expected = version ? content(page, version, at) : 0;
        uint64_t found = words[at];
        if (found != expected) wrong(where, page, at, expected, found);
    }
}

static void fill(uint64_t *words, uint64_t page, uint64_t version) {
    for (uint64_t at = 0; at < WORDS; at++) words[at] = content(page, version, at);
}

int main(int argc, char **argv) {
    if (argc != 2) return 2;
    int own = (int)syscall(SYS_userfaultfd, O_CLOEXEC | O_NONBLOCK);
    struct uffdio_api api = {.api = UFFD_API, .features = MOVE_FEATURE};
    if (own < 0 || ioctl(own, UFFDIO_API, &api)) return 3;
    int flags = MAP_PRIVATE | MAP_ANONYMOUS;
    char *from = mmap(NULL, PAGES * PAGE, PROT_READ | PROT_WRITE, flags, -1, 0);
    char *to = mmap(NULL, RUN * PAGE, PROT_READ | PROT_WRITE, flags, -1, 0);
    struct uffdio_register range = {
        .range = {.start = (uintptr_t)to, .len = RUN * PAGE}, .mode = UFFDIO_REGISTER_MODE_MISSING};
    if (from == MAP_FAILED || to == MAP_FAILED || ioctl(own, UFFDIO_REGISTER, &range)) return 3;
    static uint32_t versions[PAGES];
    for (uint64_t page = 0; page < PAGES; page++) fill((uint64_t *)(from + page * PAGE), page, versions[page] = 1);
    uint64_t moved = 0, missing = 0, failed = 0, state = 1;
    for (time_t end = time(NULL) + atoi(argv[1]); time(NULL) < end;) {
        state = state * 6364136223846793005 + 1442695040888963407;
        uint64_t first = (state >> 33) % (PAGES - RUN);
        // Often they are read before, which brings back those that are out, perhaps protected against writing.
        if (state >> 32 & 1)
            for (uint64_t page = first; page < first + RUN; page++)
                check("before", (uint64_t *)(from + page * PAGE), page, versions[page]);
        struct uffdio_move move = {.dst = (uintptr_t)to, .src = (uintptr_t)from + first * PAGE, .len = RUN * PAGE};
        int error = ioctl(own, UFFDIO_MOVE, &move) ? errno : 0;
        uint64_t done = move.move > 0 ? (uint64_t)move.move / PAGE : 0;
        moved += done;
        missing += error == ENOENT || (error == EAGAIN && done);
        failed += error && error != ENOENT && error != EAGAIN;
        for (uint64_t page = first; page < first + done; page++) {
            check("where it was moved to", (uint64_t *)(to + (page - first) * PAGE), page, versions[page]);
            check("where it was", (uint64_t *)(from + page * PAGE), page, 0);
            fill((uint64_t *)(from + page * PAGE), page, ++versions[page]);
        }
        if (done && madvise(to, RUN * PAGE, MADV_DONTNEED)) return 2;
        for (uint64_t page = first; page < first + RUN; page++)
            check("beside", (uint64_t *)(from + page * PAGE), page, versions[page]);
    }
    for (uint64_t page = 0; page < PAGES; page++)
        check("in the end", (uint64_t *)(from + page * PAGE), page, versions[page]);
    printf("moved %lu missing %lu failed %lu\n", moved, missing, failed);
    return 0;
}
