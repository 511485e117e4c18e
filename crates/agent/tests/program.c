// The program into which the agent's tests preload the agent. It reads one command a line from standard input and
// answers each with one line. It holds seeded pages; every answer that begins with "ok" was checked here.
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <sched.h>
#include <semaphore.h>
#include <signal.h>
#include <spawn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

// What differs between machines: the thread pointer, and a system call with three arguments that neither libc nor a
// preloaded library sees.
#if defined(__x86_64__)
static uintptr_t thread_pointer(void) {
    uintptr_t self;
    __asm__("mov %%fs:0, %0" : "=r"(self));
    return self;
}
static long bare_call(long number, long a, long b, long c) {
    long returned;
    __asm__ volatile("syscall" : "=a"(returned) : "a"(number), "D"(a), "S"(b), "d"(c) : "rcx", "r11", "memory");
    return returned;
}
#elif defined(__aarch64__)
static uintptr_t thread_pointer(void) {
    uintptr_t self;
    __asm__("mrs %0, tpidr_el0" : "=r"(self));
    return self;
}
static long bare_call(long number, long a, long b, long c) {
    register long x8 __asm__("x8") = number;
    register long x0 __asm__("x0") = a, x1 __asm__("x1") = b, x2 __asm__("x2") = c;
    __asm__ volatile("svc #0" : "+r"(x0) : "r"(x8), "r"(x1), "r"(x2) : "memory");
    return x0;
}
#endif

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
    *(uintptr_t *)argument = thread_pointer();
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

// A fork that neither libc nor a preloaded library sees.
static long bare_fork(void) { return bare_call(SYS_clone, SIGCHLD, 0, 0); }

static int ended(long child) {
    int status = -1;
    waitpid((pid_t)child, &status, 0);
    return status;
}

// The child of a bare clone has a copy of the agent's state at that moment. Its own forks must not wait for that state
// to change.
static int fork_in_a_copy(void) {
    long copy = bare_fork();
    if (copy) return ended(copy);
    alarm(10);
    pid_t child = fork();
    if (!child) _exit(wrong_page(0, PAGES) < 0 ? 0 : 1);
    _exit(ended(child) != 0);
}

// One thread forks and waits for the pager; meanwhile another makes a child by a bare clone.
static void fork_and_clone_at_once(void) {
    pthread_t thread;
    pthread_create(&thread, NULL, forking_body, (void *)1);
    // The test holds the announced fork back until this line is there.
    usleep(200000);
    long child = bare_fork();
    // The child waits in an event that nobody reads. Its userfaultfd then answers EAGAIN to everything.
    if (!child) { madvise(memory, PAGE, MADV_DONTNEED); pause(); _exit(0); }
    printf("bare\n");
    void *failed;
    pthread_join(thread, &failed);
    kill((pid_t)child, SIGKILL);
    ended(child);
    printf(failed ? "failed\n" : "ok\n");
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
    printf("%s %lx errno %d\n", ok ? "ok" : "changed", (unsigned long)thread_pointer(), first_errno);
}

#define SCRIPT "test \"$LD_PRELOAD\" = \"$WANT\" && test \"$0\" = a && test $7 = h && exit 7"
#define LIST "sh", "-c", SCRIPT, "a", "b", "c", "d", "e", "f", "g", "h"

// Starts a shell in every possible way. Each shell must have the wanted LD_PRELOAD and all arguments.
static void start_in_every_way(void) {
    char *list[] = {LIST, NULL};
    char **volatile unreadable = (char **)8;
    static int wrong, way;
    for (wrong = way = 0; way < 11; way++) {
        pid_t child = 0;
        if (way == 9 && posix_spawn(&child, "/bin/sh", NULL, NULL, list, environ)) child = -1;
        if (way == 10 && posix_spawnp(&child, "sh", NULL, NULL, list, environ)) child = -1;
        if (way < 9) child = way & 1 ? fork() : vfork();
        if (child == 0) {
            if (way == 0) execl("/bin/sh", LIST, NULL);
            if (way == 1) execlp("sh", LIST, NULL);
            if (way == 2) execle("/bin/sh", LIST, NULL, environ);
            if (way == 3) execv("/bin/sh", list);
            if (way == 4) execve("/bin/sh", list, environ);
            if (way == 5) execvp("sh", list);
            if (way == 6) execvpe("sh", list, environ);
            if (way == 7) fexecve(open("/bin/sh", O_RDONLY), list, environ);
            if (way == 8) execveat(AT_FDCWD, "/bin/sh", list, environ, 0);
            _exit(1);
        }
        if (ended(child) != 7 << 8) wrong |= 1 << way;
    }
    int silent = execv("/nowhere/at/all", list) == -1 && errno == ENOENT && execve("/bin/sh", list, unreadable) == -1 &&
                 errno == EFAULT;
    printf(wrong || !silent ? "failed %x %d\n" : "ok\n", wrong, silent);
}

// errno of unshare, 0 if it worked.
static int unshare_now(int flags) { return unshare(flags) ? errno : 0; }

static void *wait_to_be_cancelled(void *nothing) {
    pause();
    return nothing;
}

static void unshare_beside_a_thread(int flags) {
    pthread_t thread;
    pthread_create(&thread, NULL, wait_to_be_cancelled, NULL);
    printf("ok %d\n", unshare_now(flags));
    pthread_cancel(thread);
    pthread_join(thread, NULL);
}

// Installs a filter that lets every call run, on the calling thread alone. Neither libc nor a preloaded library sees
// it. Returns what the kernel returned.
static long bare_filter(long flags) {
    struct sock_filter allow = {.code = BPF_RET | BPF_K, .k = SECCOMP_RET_ALLOW};
    struct sock_fprog program = {.len = 1, .filter = &allow};
    return bare_call(SYS_seccomp, SECCOMP_SET_MODE_FILTER, flags, (long)&program);
}

static void *filter_itself(void *ready) {
    prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
    printf(bare_filter(0) ? "failed\n" : "ok\n");
    sem_post(ready);
    pause();
    return NULL;
}

// From then on there is a thread with a filter of its own.
static void thread_with_a_filter(void) {
    pthread_t thread;
    static sem_t ready;
    if (pthread_create(&thread, NULL, filter_itself, &ready)) printf("failed\n");
    else sem_wait(&ready);
}

// From then on there is a listener of the program's own, which stays with the next program.
static void listen_to_itself(void) {
    long listener = bare_filter(SECCOMP_FILTER_FLAG_NEW_LISTENER);
    printf(listener < 0 || fcntl((int)listener, F_SETFD, 0) ? "failed %ld\n" : "ok %ld\n", listener);
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
    else if (!strcmp(word, "rawexit")) syscall(SYS_exit, a);
    else if (!strcmp(word, "nofile")) limit_descriptors(a);
    else if (!strcmp(word, "closeall")) { for (int fd = 3; fd < 1024; fd++) close(fd); printf("ok\n"); }
    else if (!strcmp(word, "chroot")) printf("%d\n", chroot("/proc") || chdir("/"));
    else if (!strcmp(word, "system")) { int failed = system("exit 7") != 7 << 8; printf(failed ? "failed\n" : "ok\n"); }
    else if (!strcmp(word, "unshare")) printf("ok %d\n", unshare_now((int)a));
    else if (!strcmp(word, "threadedunshare")) unshare_beside_a_thread((int)a);
    else if (!strcmp(word, "starts")) start_in_every_way();
    else if (!strcmp(word, "clearenv")) { clearenv(); printf("ok\n"); }
    else if (!strcmp(word, "exec")) { printf("exec\n"); fflush(stdout); execv(argv[0], argv); }
    else if (!strcmp(word, "barefork")) {
        long child = bare_fork();
        if (child == 0) _exit(wrong_page(0, PAGES) < 0 ? 0 : 1);
        printf(ended(child) ? "failed\n" : "ok\n");
    }
    else if (!strcmp(word, "forkandclone")) fork_and_clone_at_once();
    else if (!strcmp(word, "daemon")) { if (fork()) _exit(0); printf("child %d\n", getpid()); }
    else if (!strcmp(word, "lockall")) printf("%d\n", mlockall(MCL_CURRENT) || munlockall());
    else if (!strcmp(word, "lock")) printf("%d\n", mlock((void *)a, b));
    else if (!strcmp(word, "threadfilter")) thread_with_a_filter();
    else if (!strcmp(word, "listen")) listen_to_itself();
    else if (!strcmp(word, "quit")) return 0;
    else printf("what is %s\n", word);
    return 1;
}

int main(int argc, char **argv) {
    first_errno = errno;
    setvbuf(stdout, NULL, _IOLBF, 0);
    memory = mmap(NULL, PAGES * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) return 1;
    madvise(memory, PAGES * PAGE, MADV_NOHUGEPAGE);
    for (size_t page = 0; page < PAGES; page++) fill(page);
    if (argc > 1 && !strcmp(argv[1], "copy")) return fork_in_a_copy();
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
