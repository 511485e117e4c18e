// Fills memory, makes a child by one of the ways that no hook of fork sees, and verifies all of it in both for ever.
//
// usage: clones LOG MIB WAY, where WAY is bare, syscall, syscall3, _Fork or clone. Each process logs its passes and the
// first word that is wrong. The log is written with single calls, so a line in it is whole.
#define _GNU_SOURCE
#include <fcntl.h>
#include <linux/sched.h>
#include <sched.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

static int log_file;
static uint64_t *words;
static size_t count;

static uint64_t mix(uint64_t x) {
    x += 0x9e3779b97f4a7c15;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
    x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
    return x ^ (x >> 31);
}

// An eighth of each page is noise, so that it compresses, but not to nothing.
static uint64_t content(size_t at) { return at % 8 ? (at >> 9) + 1 : mix(at); }

static void say(const char *who, const char *what, unsigned long number) {
    char line[128];
    int bytes = snprintf(line, sizeof line, "%d %s %s %lu\n", (int)getpid(), what, who, number);
    if (write(log_file, line, (size_t)bytes) != bytes) abort();
}

static int verify_for_ever(void *who) {
    say(who, "begins", 0);
    for (unsigned long pass = 0;; pass++) {
        for (size_t at = 0; at < count; at++)
            if (words[at] != content(at)) {
                say(who, words[at] ? "WRONG" : "WRONG (zeros)", at);
                _exit(99);
            }
        say(who, "pass", pass);
    }
}

static long bare(void) {
    long child;
    __asm__ volatile("syscall"
                     : "=a"(child)
                     : "a"(SYS_clone), "D"((long)SIGCHLD), "S"(0L), "d"(0L)
                     : "rcx", "r11", "memory");
    return child;
}

static long make_child(const char *way) {
    struct clone_args args = {.exit_signal = SIGCHLD};
    if (!strcmp(way, "bare")) return bare();
    if (!strcmp(way, "syscall")) return syscall(SYS_clone, SIGCHLD, NULL, NULL, NULL, NULL);
    if (!strcmp(way, "syscall3")) return syscall(SYS_clone3, &args, sizeof args);
    if (!strcmp(way, "_Fork")) return _Fork();
    char *stack = mmap(NULL, 1 << 20, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    return clone(verify_for_ever, stack + (1 << 20), SIGCHLD, "child");
}

int main(int argc, char **argv) {
    if (argc != 4) return 2;
    log_file = open(argv[1], O_WRONLY | O_CREAT | O_APPEND, 0644);
    count = strtoul(argv[2], NULL, 10) * 131072;
    words = mmap(NULL, count * 8, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (log_file < 0 || words == MAP_FAILED) return 2;
    for (size_t at = 0; at < count; at++) words[at] = content(at);
    say("parent", "filled", 0);
    long child = make_child(argv[3]);
    if (child < 0) return 2;
    return verify_for_ever(child ? "parent" : "child");
}
