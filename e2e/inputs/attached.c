// A program to which the agent is attached from outside. It needs no library but libc, which may be any.
//
// usage: attached fill MIB CHILDREN    fills memory and verifies it, also in children that change a part of theirs
//        attached forks MIB ROUNDS     fills memory, and forks in three threads at once while signals come;
//                                      children move and discard what they have inherited, and fork in their turn
//        attached until MIB FILE       fills memory and verifies it, also in children, until the file is there
//        attached brood MIB FILE       fills memory and forks children that live for a moment, until the file is there
//        attached early MIB CHILDREN   forks while it is small; each child then fills memory of its own and verifies it
//        attached untraced MIB         forks where nobody may trace it; the child moves, guards and discards memory
//        attached spawn MIB ROUNDS     fills memory and verifies it while it starts others by vfork and posix_spawn
//        attached sleep HOW            sleeps in one system call, which must end as if nothing had happened
//        attached confine PROGRAM...   installs a seccomp filter by the bare call and becomes another program
//        attached nothing
//
// It prints "right" and ends with 0, or says what is wrong and ends with 1.
#define _GNU_SOURCE
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <spawn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/select.h>
#include <sys/sem.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

extern char **environ;

static uint64_t *words;
static size_t count;

static uint64_t mix(uint64_t x) {
    x += 0x9e3779b97f4a7c15;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
    x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
    return x ^ (x >> 31);
}

// An eighth of each page is noise, so that it compresses, but not to nothing.
static uint64_t content(size_t at, uint64_t seed) { return mix(at % 8 ? (at >> 9) * 64 + seed : at * 64 + seed); }

static void fail(const char *what, uint64_t number) {
    printf("process %d: %s %llu (errno %d)\n", (int)getpid(), what, (unsigned long long)number, errno);
    fflush(stdout);
    _exit(1);
}

static void write_words(size_t from, size_t to, uint64_t seed) {
    for (size_t at = from; at < to; at++) words[at] = content(at, seed);
}

static void verify(size_t from, size_t to, uint64_t seed) {
    for (size_t at = from; at < to; at++)
        if (words[at] != content(at, seed)) fail(words[at] ? "wrong word" : "zero word", at);
}

static void fill(const char *mib) {
    count = strtoul(mib, NULL, 10) << 17;
    words = mmap(NULL, count * 8, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (words == MAP_FAILED) fail("mmap", count);
    write_words(0, count, 0);
    verify(0, count, 0);
}

static void must_have_ended(pid_t child) {
    int status;
    if (waitpid(child, &status, 0) != child || status != 0) fail("a child ended with", (uint64_t)status);
}

static void in_child(uint64_t seed) {
    verify(0, count, 0);
    write_words(0, count / 4, seed);
    verify(0, count / 4, seed);
    verify(count / 4, count, 0);
    _exit(0);
}

static void with_children(int children) {
    pid_t pids[64];
    for (int i = 0; i < children && i < 64; i++) {
        pids[i] = fork();
        if (pids[i] < 0) fail("fork", 0);
        if (pids[i] == 0) in_child((uint64_t)i + 1);
    }
    verify(0, count, 0);
    for (int i = 0; i < children && i < 64; i++) must_have_ended(pids[i]);
    verify(0, count, 0);
}

static void early(const char *mib, int children) {
    pid_t pids[64];
    for (int i = 0; i < children && i < 64; i++) {
        pids[i] = fork();
        if (pids[i] < 0) fail("fork", 0);
        if (pids[i] == 0) {
            // Time for an agent to be attached, which takes a tenth of a second.
            poll(NULL, 0, 500);
            fill(mib);
            verify(0, count, 0);
            _exit(0);
        }
    }
    for (int i = 0; i < children && i < 64; i++) must_have_ended(pids[i]);
}

enum { GUARD_INSTALL = 102, GUARD_REMOVE = 103, PAGE_WORDS = 512, PAGE = PAGE_WORDS * 8 };

// A page of the parent's alone.
static size_t not_inherited(void) { return 7 * (count / 8); }

// Nobody gives this child an agent. What it asks for happens as it does without vswap.
static void in_untraced_child(void) {
    size_t moved = count / 4, guarded = count / 2, freed = 3 * count / 4;
    uint64_t *to = mmap(NULL, moved * 8, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (to == MAP_FAILED) fail("mmap", moved);
    // Other memory lies where the parent has some that it does not hand down.
    if (mmap(words + not_inherited(), PAGE, PROT_READ, MAP_SHARED | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == MAP_FAILED)
        fail("mmap", not_inherited());
    uint64_t *at = mremap(words, moved * 8, moved * 8, MREMAP_MAYMOVE | MREMAP_FIXED, to);
    if (at != to) fail("mremap", moved);
    for (size_t word = 0; word < moved; word++)
        if (at[word] != content(word, 0)) fail(at[word] ? "wrong moved word" : "zero moved word", word);
    if (madvise(words + guarded, PAGE, GUARD_INSTALL)) fail("MADV_GUARD_INSTALL", guarded);
    if (madvise(words + guarded, PAGE, GUARD_REMOVE)) fail("MADV_GUARD_REMOVE", guarded);
    if (madvise(words + freed, PAGE, MADV_DONTNEED)) fail("MADV_DONTNEED", freed);
    for (size_t word = 0; word < PAGE_WORDS; word++) {
        if (words[guarded + word]) fail("word behind a guard", word);
        if (words[freed + word]) fail("discarded word", word);
    }
    verify(moved, guarded, 0);
    verify(guarded + PAGE_WORDS, freed, 0);
    verify(freed + PAGE_WORDS, not_inherited(), 0);
    verify(not_inherited() + PAGE_WORDS, count, 0);
    _exit(0);
}

static void untraced(void) {
    if (madvise(words + not_inherited(), PAGE, MADV_DONTFORK)) fail("MADV_DONTFORK", not_inherited());
    for (int round = 0; round < 3; round++) {
        long child = syscall(SYS_clone, CLONE_UNTRACED | SIGCHLD, NULL, NULL, NULL, 0L);
        if (child < 0) fail("clone", 0);
        if (child == 0) in_untraced_child();
        verify(0, count, 0);
        must_have_ended((pid_t)child);
    }
    verify(0, count, 0);
}

enum { FORKERS = 3, SIGNAL_US = 20000 };
static int rounds_wanted;

static void ignore(int signal) { (void)signal; }

static void grandchild(void) {
    verify(0, count, 0);
    _exit(0);
}

// Calls that need an agent: without one they would fail.
static void moving_child(void) {
    // No timer any more, but a signal of the parent's may still come.
    words = mremap(words, count * 8, count * 16, MREMAP_MAYMOVE);
    if (words == MAP_FAILED) fail("mremap", count);
    verify(0, count, 0);
    if (madvise(words + count / 2, count * 4, MADV_WIPEONFORK)) fail("MADV_WIPEONFORK", count);
    if (madvise(words + count / 2, count * 4, MADV_KEEPONFORK)) fail("MADV_KEEPONFORK", count);
    pid_t pid = syscall(SYS_clone, SIGCHLD, 0L, 0L, 0L, 0L);
    if (pid < 0) fail("clone", 0);
    if (pid == 0) grandchild();
    verify(0, count, 0);
    must_have_ended(pid);
    if (madvise(words, count * 4, MADV_FREE)) fail("MADV_FREE", count);
    write_words(0, count / 2, 3);
    verify(0, count / 2, 3);
    verify(count / 2, count, 0);
    _exit(0);
}

static void *forker(void *unused) {
    for (int round = 0; round < rounds_wanted; round++) {
        pid_t pid = fork();
        if (pid < 0) fail("fork", (uint64_t)round);
        if (pid == 0) moving_child();
        must_have_ended(pid);
    }
    return unused;
}

static void with_forks(int rounds) {
    struct sigaction action = {.sa_handler = ignore, .sa_flags = SA_RESTART};
    struct itimerval often = {{0, SIGNAL_US}, {0, SIGNAL_US}}, never = {{0, 0}, {0, 0}};
    pthread_t threads[FORKERS];
    rounds_wanted = rounds;
    if (sigaction(SIGALRM, &action, NULL) || setitimer(ITIMER_REAL, &often, NULL)) fail("timer", 0);
    for (int i = 0; i < FORKERS; i++)
        if (pthread_create(&threads[i], NULL, forker, NULL)) fail("thread", (uint64_t)i);
    for (int i = 0; i < FORKERS; i++) pthread_join(threads[i], NULL);
    setitimer(ITIMER_REAL, &never, NULL);
    verify(0, count, 0);
}

static void with_programs(char *self, int rounds) {
    char *arguments[] = {self, "nothing", NULL};
    for (int round = 0; round < rounds; round++) {
        pid_t spawned, made = vfork();
        if (made == 0) {
            execve(self, arguments, environ);
            _exit(9);
        }
        if (made < 0 || posix_spawn(&spawned, self, NULL, NULL, arguments, environ)) fail("spawn", (uint64_t)round);
        must_have_ended(made);
        must_have_ended(spawned);
        verify(0, count / 64, 0);
    }
    verify(0, count, 0);
}

static void until_it_is_there(const char *file) {
    do {
        pid_t child = fork();
        if (child < 0) fail("fork", 0);
        if (child == 0) in_child(1);
        must_have_ended(child);
        verify(0, count, 0);
    } while (access(file, F_OK));
}

static void brood(const char *file) {
    while (access(file, F_OK)) {
        pid_t child = fork();
        if (child < 0) fail("fork", 0);
        if (child == 0) {
            *(volatile uint64_t *)&words[0] = words[0];
            poll(NULL, 0, 2);
            _exit(0);
        }
        must_have_ended(child);
    }
    verify(0, count, 0);
}

static double now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + (double)time.tv_nsec / 1e9;
}

#define SLEEP_MS 900

// Each way of sleeping, and what it must return.
static int sleep_by(const char *how) {
    struct timespec time = {.tv_nsec = SLEEP_MS * 1000000L};
    struct timeval time_us = {.tv_usec = SLEEP_MS * 1000L};
    sigset_t none;
    sigemptyset(&none);
    if (!strcmp(how, "nanosleep")) return nanosleep(&time, NULL) == 0;
    if (!strcmp(how, "poll")) return poll(NULL, 0, SLEEP_MS) == 0;
    if (!strcmp(how, "select")) return select(0, NULL, NULL, NULL, &time_us) == 0;
    if (!strcmp(how, "sigtimedwait")) return sigtimedwait(&none, NULL, &time) == -1 && errno == EAGAIN;
    if (!strcmp(how, "epoll")) {
        struct epoll_event event;
        return epoll_wait(epoll_create1(0), &event, 1, SLEEP_MS) == 0;
    }
    if (!strcmp(how, "semaphore")) {
        struct sembuf down = {.sem_op = -1};
        int semaphore = semget(IPC_PRIVATE, 1, 0600);
        int is_right = syscall(SYS_semtimedop, semaphore, &down, 1, &time) == -1 && errno == EAGAIN;
        semctl(semaphore, 0, IPC_RMID);
        return is_right;
    }
    if (!strcmp(how, "socket")) {
        int ends[2];
        char byte;
        if (socketpair(AF_UNIX, SOCK_STREAM, 0, ends)) return 0;
        setsockopt(ends[0], SOL_SOCKET, SO_RCVTIMEO, &time_us, sizeof time_us);
        return recv(ends[0], &byte, 1, 0) == -1 && errno == EAGAIN;
    }
    return 0;
}

static void sleep_well(const char *how) {
    double since = now();
    errno = 0;
    if (!sleep_by(how)) fail(how, 0);
    // The clocks of the kernel's timers are coarse; a call that was cut short by the attaching is far below this.
    if (now() - since < SLEEP_MS / 1000.0 - 0.05) fail("it slept too short", 0);
}

// The kernel's records: not every libc comes with its headers.
struct rule {
    uint16_t code;
    uint8_t if_true, if_false;
    uint32_t value;
};
struct rules {
    unsigned short count;
    struct rule *rules;
};

// Kills for userfaultfd, socket and connect, as sandboxes do, and allows everything else.
static void confine(char **command) {
    enum { LOAD = 0x20, IS_EQUAL = 0x15, RETURN = 0x06, MODE_FILTER = 1 };
    struct rule list[] = {
        {LOAD, 0, 0, 0},
        {IS_EQUAL, 2, 0, SYS_userfaultfd},
        {IS_EQUAL, 1, 0, SYS_socket},
        {IS_EQUAL, 0, 1, SYS_connect},
        {RETURN, 0, 0, 0x80000000},
        {RETURN, 0, 0, 0x7fff0000},
    };
    struct rules filter = {sizeof list / sizeof *list, list};
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)) fail("no_new_privs", 0);
    long error;
    __asm__ volatile("syscall"
                     : "=a"(error)
                     : "a"(SYS_seccomp), "D"((long)MODE_FILTER), "S"(0L), "d"(&filter)
                     : "rcx", "r11", "memory");
    if (error) fail("seccomp", (uint64_t)-error);
    execv(command[0], command);
    fail("exec", 0);
}

int main(int argc, char **argv) {
    const char *verb = argc > 1 ? argv[1] : "";
    if (!strcmp(verb, "nothing")) return 0;
    if (!strcmp(verb, "fill") && argc == 4) {
        fill(argv[2]);
        with_children(atoi(argv[3]));
    } else if (!strcmp(verb, "forks") && argc == 4) {
        fill(argv[2]);
        with_forks(atoi(argv[3]));
    } else if (!strcmp(verb, "until") && argc == 4) {
        fill(argv[2]);
        until_it_is_there(argv[3]);
    } else if (!strcmp(verb, "brood") && argc == 4) {
        fill(argv[2]);
        brood(argv[3]);
    } else if (!strcmp(verb, "untraced") && argc == 3) {
        fill(argv[2]);
        untraced();
    } else if (!strcmp(verb, "early") && argc == 4) {
        early(argv[2], atoi(argv[3]));
    } else if (!strcmp(verb, "spawn") && argc == 4) {
        fill(argv[2]);
        with_programs(argv[0], atoi(argv[3]));
    } else if (!strcmp(verb, "sleep") && argc == 3) {
        sleep_well(argv[2]);
    } else if (!strcmp(verb, "confine") && argc > 2) {
        confine(argv + 2);
    } else {
        return 2;
    }
    puts("right");
    return 0;
}
