// Children in pid namespaces of their own, and children that a seccomp filter kills, each with memory that is swapped
// again and again. Each must find its bytes, and end as it does without vswap. Those without an agent move their memory
// and install guard pages too.
//
// usage: namespaces MIB ROUNDS
//
// It prints "right" and ends with 0, or says what is wrong and ends with 1. It wants root.
#define _GNU_SOURCE
#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/utsname.h>
#include <sys/wait.h>
#include <unistd.h>

enum { PAGE = 4096, STACK = 1 << 20, STATUS = 7, PASSES = 3 };

static unsigned char *bytes;
static size_t pages;

static void wrong(const char *what, int line) {
    printf("line %d: %s (errno %d)\n", line, what, errno);
    exit(1);
}

#define MUST(what) \
    do { \
        if (!(what)) wrong(#what, __LINE__); \
    } while (0)

static uint64_t content(size_t page, size_t word) {
    return (page * 512 + word) * 0x9e3779b97f4a7c15u + 1;
}

static void fill(void) {
    for (size_t page = 0; page < pages; page++)
        for (size_t word = 0; word < 512; word++)
            ((uint64_t *)(bytes + page * PAGE))[word] = content(page, word);
}

static int is_right(void) {
    for (size_t page = 0; page < pages; page++)
        for (size_t word = 0; word < 512; word++)
            if (((uint64_t *)(bytes + page * PAGE))[word] != content(page, word)) return 0;
    return 1;
}

// Ends by returning, which ends its main thread alone: the agent's thread is left.
static int verify(void *unused) {
    (void)unused;
    for (int pass = 0; pass < PASSES; pass++)
        if (!is_right()) return 1;
    return STATUS;
}

// Is the kernel at least as new?
static int is_linux(int major, int minor) {
    struct utsname names;
    int own[2];
    MUST(uname(&names) == 0 && sscanf(names.release, "%d.%d", &own[0], &own[1]) == 2);
    return own[0] > major || (own[0] == major && own[1] >= minor);
}

// Moves all memory in one call, which lies in several mappings with a hole between them. Linux 6.17 can do that.
static int move(void) {
    if (!is_linux(6, 17)) return 1;
    size_t length = pages * PAGE, hole = pages / 2;
    unsigned char *to = mmap(NULL, length, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (to == MAP_FAILED || mprotect(bytes, 3 * PAGE, PROT_READ) != 0) return 0;
    if (munmap(bytes + hole * PAGE, PAGE) != 0) return 0;
    if (mremap(bytes, length, length, MREMAP_MAYMOVE | MREMAP_FIXED, to) != to) return 0;
    bytes = to;
    if (mprotect(bytes, 3 * PAGE, PROT_READ | PROT_WRITE) != 0) return 0;
    // The kernel leaves alone what lies where the hole comes to be.
    unsigned char *filled = mmap(bytes + hole * PAGE, PAGE, PROT_READ | PROT_WRITE,
                                 MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
    if (filled != bytes + hole * PAGE) return 0;
    for (size_t word = 0; word < 512; word++) ((uint64_t *)filled)[word] = content(hole, word);
    return 1;
}

// What a guard page discards does not come back. Linux 6.13 has guard pages.
static int guard(void) {
    enum { INSTALL = 102, REMOVE = 103, FIRST = 8, COUNT = 16 };
    if (!is_linux(6, 13)) return 1;
    unsigned char *first = bytes + FIRST * PAGE;
    if (madvise(first, COUNT * PAGE, INSTALL) != 0) return 0;
    // A window of pages comes back around the guards.
    if (bytes[(FIRST - 1) * PAGE + 8] != (unsigned char)content(FIRST - 1, 1)) return 0;
    if (bytes[(FIRST + COUNT) * PAGE + 8] != (unsigned char)content(FIRST + COUNT, 1)) return 0;
    if (madvise(first, COUNT * PAGE, REMOVE) != 0) return 0;
    for (size_t byte = 0; byte < COUNT * PAGE; byte++)
        if (first[byte] != 0) return 0;
    return 1;
}

// As `verify`, in a child without an agent.
static int change_and_verify(void) {
    if (!guard()) return 6;
    for (size_t page = 8; page < 24; page++)
        for (size_t word = 0; word < 512; word++)
            ((uint64_t *)(bytes + page * PAGE))[word] = content(page, word);
    return move() ? verify(NULL) : 8;
}

static void must_end_with(pid_t child, int status) {
    int ended = 0;
    MUST(child > 0);
    MUST(waitpid(child, &ended, 0) == child);
    if (ended == status) return;
    printf("a child ended with %#x in place of %#x\n", ended, status);
    exit(1);
}

static void child_of_clone(int flags) {
    char *stack = mmap(NULL, STACK, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    MUST(stack != MAP_FAILED);
    must_end_with(clone(verify, stack + STACK, flags | SIGCHLD, NULL), STATUS << 8);
    MUST(munmap(stack, STACK) == 0);
}

// In a process of its own, because the namespaces stay with whoever asks for them.
static void child_of_unshare(int flags) {
    pid_t other = fork();
    if (other == 0) {
        if (unshare(flags) != 0) _exit(2);
        pid_t child = fork();
        if (child == 0) _exit(getpid() == 1 ? change_and_verify() : 3);
        int status = 0;
        if (waitpid(child, &status, 0) != child || !is_right()) _exit(4);
        _exit(WIFEXITED(status) ? WEXITSTATUS(status) : 5);
    }
    must_end_with(other, STATUS << 8);
}

// Installs a filter that kills the thread that makes this call.
static int kill_for(int call) {
    struct sock_filter code[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, 0),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, call, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_THREAD),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog filter = {sizeof code / sizeof *code, code};
    return prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter);
}

// Its filter kills its only thread.
static void child_of_filter(void) {
    pid_t child = fork();
    if (child == 0) {
        if (!is_right() || prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0) _exit(2);
        if (kill_for(SYS_getppid) != 0) _exit(3);
        if (!is_right()) _exit(4);
        syscall(SYS_getppid);
        _exit(5);
    }
    int ended = 0;
    MUST(waitpid(child, &ended, 0) == child);
    if (WIFSIGNALED(ended) && WTERMSIG(ended) == SIGSYS) return;
    printf("a filtered child ended with %#x\n", ended);
    exit(1);
}

// One filter after another, each of which kills the thread that calls getpid, which this program never does.
static void child_of_filters(void) {
    pid_t child = fork();
    if (child == 0) {
        if (!is_right() || prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0) _exit(2);
        for (int more = 0; more < 3; more++) {
            if (kill_for(SYS_getpid) != 0) _exit(3);
            if (!is_right()) _exit(4);
        }
        _exit(STATUS);
    }
    must_end_with(child, STATUS << 8);
}

// A child of a process that has a filter of its own gets no agent.
static void grandchild_of_filter(void) {
    pid_t child = fork();
    if (child == 0) {
        if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 || kill_for(SYS_swapon) != 0) _exit(2);
        pid_t other = fork();
        if (other == 0) _exit(change_and_verify());
        must_end_with(other, STATUS << 8);
        _exit(STATUS);
    }
    must_end_with(child, STATUS << 8);
}

int main(int count, char **words) {
    MUST(count == 3);
    pages = (size_t)atoi(words[1]) << 8;
    bytes = mmap(NULL, pages * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    MUST(bytes != MAP_FAILED);
    fill();
    for (int round = 0; round < atoi(words[2]); round++) {
        child_of_clone(0);
        child_of_clone(CLONE_NEWPID | CLONE_NEWNS);
        child_of_unshare(CLONE_NEWPID);
        child_of_unshare(CLONE_NEWUSER | CLONE_NEWPID | CLONE_NEWUTS);
        child_of_filter();
        child_of_filters();
        grandchild_of_filter();
        MUST(is_right());
    }
    puts("right");
    return 0;
}
