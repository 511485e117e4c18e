// The program that the agent's tests preload it into. Takes one command a line on standard input and answers with one
// line each. Holds seeded pages; every answer that begins with "ok" was checked here.
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#define PAGE 4096
#define PAGES 256

static unsigned char *memory;
static int first_errno;

static unsigned char byte_of(size_t page, size_t at) { return (unsigned char)((page * 131 + at * 7 + 1) % 251); }

static void fill(size_t page) {
    for (size_t at = 0; at < PAGE; at++) memory[page * PAGE + at] = byte_of(page, at);
}

// Index of the first wrong page of [first, end), or -1.
static long wrong_page(size_t first, size_t end) {
    for (size_t page = first; page < end; page++)
        for (size_t at = 0; at < PAGE; at++)
            if (memory[page * PAGE + at] != byte_of(page, at)) return (long)page;
    return -1;
}

static int verify(size_t first, size_t end) {
    long wrong = wrong_page(first, end);
    if (wrong < 0) printf("ok\n");
    else printf("wrong page %ld\n", wrong);
    return wrong < 0 ? 0 : 1;
}

static void list_descriptors(void) {
    char target[256], path[64];
    DIR *dir = opendir("/proc/self/fd");
    if (!dir) { printf("none\n"); return; }
    for (struct dirent *entry; (entry = readdir(dir));) {
        if (entry->d_name[0] == '.' || atoi(entry->d_name) == dirfd(dir)) continue;
        snprintf(path, sizeof path, "/proc/self/fd/%.20s", entry->d_name);
        ssize_t length = readlink(path, target, sizeof target);
        // Numbers of pipes differ from run to run, kinds do not.
        char *kind = memchr(target, ':', length > 0 ? (size_t)length : 0);
        printf("%s=%.*s ", entry->d_name, kind ? (int)(kind - target) : (int)length, target);
    }
    closedir(dir);
    printf("\n");
}

static void *thread_body(void *argument) {
    uintptr_t self;
    __asm__("mov %%fs:0, %0" : "=r"(self));
    *(uintptr_t *)argument = self;
    return (void *)0x1234;
}

static void *forking_body(void *argument) {
    for (int i = 0; i < (int)(intptr_t)argument; i++) {
        pid_t child = fork();
        int status = 1;
        if (child == 0) _exit(wrong_page(0, PAGES) < 0 ? 0 : 1);
        if (child < 0 || waitpid(child, &status, 0) != child || status != 0) return (void *)1;
    }
    return NULL;
}

static void threads_that_fork(int count, int forks) {
    pthread_t threads[8];
    void *failed;
    int failures = 0;
    for (int i = 0; i < count; i++)
        if (pthread_create(&threads[i], NULL, forking_body, (void *)(intptr_t)forks)) failures++;
    for (int i = 0; i < count; i++) {
        pthread_join(threads[i], &failed);
        failures += failed != NULL;
    }
    printf(failures ? "failed %d\n" : "ok\n", failures);
}

// The child goes on reading commands; the parent waits for it and says how it ended.
static void fork_and_continue(void) {
    pid_t child = fork();
    if (child == 0) { printf("child %d\n", getpid()); return; }
    int status;
    waitpid(child, &status, 0);
    printf("child ended %d\n", status);
}

static void remap(size_t from_page, size_t pages, size_t new_pages) {
    unsigned char *from = memory + from_page * PAGE;
    unsigned char *to = mremap(from, pages * PAGE, new_pages * PAGE, MREMAP_MAYMOVE);
    if (to == MAP_FAILED) { printf("failed %d\n", errno); return; }
    unsigned char *kept = memory;
    memory = to - from_page * PAGE;
    long wrong = wrong_page(from_page, from_page + pages);
    memory = kept;
    printf("%s %p\n", wrong < 0 ? "ok" : "wrong", (void *)to);
}

static void limit_descriptors(rlim_t most) {
    struct rlimit limit = {most, most};
    printf(setrlimit(RLIMIT_NOFILE, &limit) ? "failed\n" : "ok\n");
}

static void create_thread(void) {
    pthread_t thread;
    uintptr_t self = 0;
    void *result = NULL;
    int failed = pthread_create(&thread, NULL, thread_body, &self);
    if (!failed) pthread_join(thread, &result);
    printf("%s %lx\n", !failed && result == (void *)0x1234 ? "ok" : "failed", (unsigned long)self);
}

static void show_start(char **argv) {
    sigset_t blocked;
    sigprocmask(SIG_SETMASK, NULL, &blocked);
    int ok = first_errno == 0 && argv[0];
    for (int signal = 1; signal <= 64; signal++) ok = ok && sigismember(&blocked, signal) != 1;
    uintptr_t self;
    __asm__("mov %%fs:0, %0" : "=r"(self));
    printf("%s %lx errno %d\n", ok ? "ok" : "changed", (unsigned long)self, first_errno);
}

static int obey(char *line, char **argv) {
    size_t a = 0, b = 0, c = 0;
    char word[32] = "";
    sscanf(line, "%31s %zu %zu %zu", word, &a, &b, &c);
    if (!strcmp(word, "verify")) verify(a, b);
    else if (!strcmp(word, "fill")) { for (; a < b; a++) fill(a); printf("ok\n"); }
    else if (!strcmp(word, "start")) show_start(argv);
    else if (!strcmp(word, "fds")) list_descriptors();
    else if (!strcmp(word, "fork")) fork_and_continue();
    else if (!strcmp(word, "threadforks")) threads_that_fork((int)a, (int)b);
    else if (!strcmp(word, "thread")) create_thread();
    else if (!strcmp(word, "remap")) remap(a, b, c);
    else if (!strcmp(word, "advise")) printf("%d\n", madvise(memory + a * PAGE, b * PAGE, (int)c));
    else if (!strcmp(word, "protect")) printf("%d\n", mprotect(memory + a * PAGE, b * PAGE, (int)c));
    else if (!strcmp(word, "unmap")) printf("%d\n", munmap(memory + a * PAGE, b * PAGE));
    else if (!strcmp(word, "nofile")) limit_descriptors(a);
    else if (!strcmp(word, "closeall")) { for (int fd = 3; fd < 1024; fd++) close(fd); printf("ok\n"); }
    else if (!strcmp(word, "chroot")) printf("%d\n", chroot("/proc") || chdir("/"));
    else if (!strcmp(word, "system")) { int failed = system("exit 7") != 7 << 8; printf(failed ? "failed\n" : "ok\n"); }
    else if (!strcmp(word, "clearenv")) { clearenv(); printf("ok\n"); }
    else if (!strcmp(word, "exec")) { printf("exec\n"); fflush(stdout); execv(argv[0], argv); }
    else if (!strcmp(word, "rawfork")) {
        // A child that no hook of libc sees.
        long child = syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0);
        int status = 1;
        if (child == 0) _exit(wrong_page(0, PAGES) < 0 ? 0 : 1);
        waitpid((pid_t)child, &status, 0);
        printf(status ? "failed\n" : "ok\n");
    }
    else if (!strcmp(word, "daemon")) { if (fork()) _exit(0); printf("child %d\n", getpid()); }
    else if (!strcmp(word, "lockall")) printf("%d\n", mlockall(MCL_CURRENT) || munlockall());
    else if (!strcmp(word, "quit")) return 0;
    else printf("what is %s\n", word);
    return 1;
}

int main(int argc, char **argv) {
    first_errno = errno;
    (void)argc;
    setvbuf(stdout, NULL, _IOLBF, 0);
    memory = mmap(NULL, PAGES * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) return 1;
    madvise(memory, PAGES * PAGE, MADV_NOHUGEPAGE);
    for (size_t page = 0; page < PAGES; page++) fill(page);
    printf("memory %p\n", (void *)memory);
    char line[128];
    // Unbuffered: a forked child goes on where the parent was.
    for (size_t at = 0; read(0, line + at, 1) == 1;) {
        if (line[at] != '\n') { at = at < sizeof line - 2 ? at + 1 : at; continue; }
        line[at] = 0;
        at = 0;
        if (!obey(line, argv)) return 0;
    }
    return 3;
}
