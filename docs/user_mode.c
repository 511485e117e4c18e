// What a userfaultfd that sees only user mode leaves undone, and what it costs to do it by other means (user-mode.md).
//
// gcc -O2 -pthread -o user_mode docs/user_mode.c && ./user_mode      needs no privilege, Linux 5.11 or newer
//
// First: system calls on memory that is out. Then: what one call costs if a page is to be looked at before it.
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/futex.h>
#include <linux/seccomp.h>
#include <linux/userfaultfd.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <time.h>
#include <ucontext.h>
#include <unistd.h>

#define CHECK(what) \
    do { \
        if (!(what)) { \
            fprintf(stderr, "user_mode: %s: %s\n", #what, strerror(errno)); \
            exit(1); \
        } \
    } while (0)

enum { PAGE = 4096, PAGES = 64, CALLS = 100000, ROUNDS = 7 };

static int uffd;
static char *area;

// Serves the faults that come: each page holds its number.
static void *serve(void *unused) {
    static char page[PAGE];
    for (;;) {
        struct uffd_msg message;
        if (read(uffd, &message, sizeof message) != sizeof message) return unused;
        uint64_t address = message.arg.pagefault.address & ~(uint64_t)(PAGE - 1);
        memset(page, (int)((address - (uintptr_t)area) / PAGE), PAGE);
        struct uffdio_copy copy = {.dst = address, .src = (uintptr_t)page, .len = PAGE};
        ioctl(uffd, UFFDIO_COPY, &copy);
    }
}

static void watch(void) {
    uffd = (int)syscall(SYS_userfaultfd, O_CLOEXEC | UFFD_USER_MODE_ONLY);
    CHECK(uffd >= 0);
    struct uffdio_api api = {.api = UFFD_API};
    CHECK(ioctl(uffd, UFFDIO_API, &api) == 0);
    area = mmap(NULL, PAGES * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(area != MAP_FAILED);
    struct uffdio_register all = {.range = {(uintptr_t)area, PAGES * PAGE}, .mode = UFFDIO_REGISTER_MODE_MISSING};
    CHECK(ioctl(uffd, UFFDIO_REGISTER, &all) == 0);
    pthread_t thread;
    CHECK(pthread_create(&thread, NULL, serve, NULL) == 0);
}

// A page that is out.
static char *out(void) {
    static int next = 1;
    CHECK(next < PAGES);
    return area + PAGE * next++;
}

static void said(const char *call, long result, const char *then) {
    if (result < 0)
        printf("%-44s %-12s %s\n", call, strerrorname_np(errno), then);
    else
        printf("%-44s %-12ld %s\n", call, result, then);
}

static void on_signal(int signal) { (void)signal; }

static void by_signal(void) {
    fflush(stdout);
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        watch();
        stack_t stack = {.ss_sp = area, .ss_size = 8 * PAGE};
        struct sigaction action = {.sa_handler = on_signal, .sa_flags = SA_ONSTACK};
        CHECK(sigaltstack(&stack, NULL) == 0 && sigaction(SIGUSR1, &action, NULL) == 0);
        raise(SIGUSR1);
        _exit(0);
    }
    int status;
    CHECK(waitpid(child, &status, 0) == child);
    printf("%-44s %-12s %s\n", "a signal, with its stack there", WIFSIGNALED(status) ? "killed" : "0",
           WIFSIGNALED(status) ? strsignal(WTERMSIG(status)) : "");
}

static int nothing(void *unused) {
    (void)unused;
    return 0;
}

static void by_thread_end(void) {
    static char stack[64 << 10];
    int *word = (int *)out();
    int flags = CLONE_VM | CLONE_FS | CLONE_FILES | CLONE_SIGHAND | CLONE_THREAD | CLONE_SYSVSEM | CLONE_CHILD_CLEARTID;
    CHECK(clone(nothing, stack + sizeof stack, flags, NULL, NULL, NULL, word) > 0);
    nanosleep(&(struct timespec){0, 100000000}, NULL);
    char then[64];
    // The touch brings the page in as it was: full of its number. A thread that has ended would have put 0 there.
    snprintf(then, sizeof then, *word ? "whoever joins it waits for ever" : "");
    printf("%-44s %-12s %s\n", "the end of a thread, its word there", *word ? "not written" : "0", then);
}

static void what_fails(void) {
    watch();
    printf("%-44s %-12s\n", "call on a page that is out", "result");
    char *page = out();
    said("a touch by the program", page[1], "served");
    struct timespec *now = (struct timespec *)out();
    said("clock_gettime (vdso)", clock_gettime(CLOCK_MONOTONIC, now), "served");

    int ends[2], left;
    char buffer[2 * PAGE];
    CHECK(pipe(ends) == 0 && write(ends[1], buffer, 100) == 100);
    long result = read(ends[0], out(), 100);
    int error = errno;
    CHECK(ioctl(ends[0], FIONREAD, &left) == 0);
    errno = error;
    said("read from a pipe into it", result, left == 100 ? "nothing is lost" : "bytes are lost");
    page = out();
    CHECK(page[-PAGE] == page[-PAGE]);
    CHECK(write(ends[1], buffer, 100 - left) == 100 - left);
    result = read(ends[0], page - 50, 100);
    error = errno;
    CHECK(ioctl(ends[0], FIONREAD, &left) == 0);
    errno = error;
    said("the same, half of it on a page that is in", result, left == 100 ? "nothing is lost" : "bytes are lost");

    CHECK(socketpair(AF_UNIX, SOCK_DGRAM, 0, ends) == 0 && send(ends[1], buffer, 100, 0) == 100);
    result = recv(ends[0], out(), 100, 0);
    error = errno;
    long again = recv(ends[0], buffer, 100, MSG_DONTWAIT);
    errno = error;
    said("recv of a datagram into it", result, again == 100 ? "nothing is lost" : "the datagram is lost");

    int null = open("/tmp", O_TMPFILE | O_RDWR, 0600);
    CHECK(null >= 0);
    said("write to a file from it", write(null, out(), PAGE), "");
    said("futex wait on it", syscall(SYS_futex, out(), FUTEX_WAIT, 1, NULL, NULL, 0), "");
    said("getrandom into it", getrandom(out(), 16, 0), "");
    said("stat into it", syscall(SYS_stat, "/", out()), "");
    said("open of a path in it", open(out(), O_RDONLY), "");
    struct iovec local = {buffer, 16}, remote = {out(), 16};
    said("process_vm_readv of it", process_vm_readv(getpid(), &local, 1, &remote, 1, 0), "by whomever");
    said("mlock of it", mlock(out(), PAGE), "");
    said("MADV_POPULATE_WRITE of it", madvise(out(), PAGE, MADV_POPULATE_WRITE), "");
    by_thread_end();
    by_signal();
}

// Code that may make system calls while all others are dispatched: the call itself, and the return from the handler.
long direct_call(long number, long a, long b, long c, long d, long e, long f);
void direct_return(void);
extern char direct_begin[], direct_end[];
__asm__(".pushsection .text\n"
        "direct_begin:\n"
        "direct_call:\n"
        "mov %rdi, %rax\n mov %rsi, %rdi\n mov %rdx, %rsi\n mov %rcx, %rdx\n mov %r8, %r10\n mov %r9, %r8\n"
        "mov 8(%rsp), %r9\n syscall\n ret\n"
        "direct_return:\n"
        "mov $15, %eax\n syscall\n ud2\n"
        "direct_end:\n"
        ".popsection\n");

static volatile char selector;

// What an agent would do: touch what the call names, then make it.
static void on_call(int signal, siginfo_t *info, void *context) {
    (void)signal;
    (void)info;
    greg_t *r = ((ucontext_t *)context)->uc_mcontext.gregs;
    if (r[REG_RAX] == SYS_read) *(volatile char *)r[REG_RSI];
    r[REG_RAX] = direct_call(r[REG_RAX], r[REG_RDI], r[REG_RSI], r[REG_RDX], r[REG_R10], r[REG_R8], r[REG_R9]);
}

static void dispatch_all(void) {
    struct {
        void *handler;
        unsigned long flags;
        void *restorer;
        unsigned long mask;
    } action = {on_call, SA_SIGINFO | 0x04000000, direct_return, 0};
    CHECK(syscall(SYS_rt_sigaction, SIGSYS, &action, NULL, 8L) == 0);
    long bytes = direct_end - direct_begin;
    CHECK(prctl(PR_SET_SYSCALL_USER_DISPATCH, PR_SYS_DISPATCH_ON, direct_begin, bytes, &selector) == 0);
    selector = SYSCALL_DISPATCH_FILTER_BLOCK;
}

static void *answer_all(void *argument) {
    int listener = *(int *)argument;
    for (;;) {
        struct seccomp_notif call = {0};
        if (ioctl(listener, SECCOMP_IOCTL_NOTIF_RECV, &call)) return NULL;
        struct seccomp_notif_resp answer = {.id = call.id, .flags = SECCOMP_USER_NOTIF_FLAG_CONTINUE};
        ioctl(listener, SECCOMP_IOCTL_NOTIF_SEND, &answer);
    }
}

// Another thread answers. It may make its calls, because it exists before the filter.
static void notify_all(void) {
    struct sock_filter code[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, 0),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_read, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_USER_NOTIF),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog program = {4, code};
    static int listener;
    CHECK(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0);
    listener = (int)syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_NEW_LISTENER, &program);
    CHECK(listener >= 0);
    // Wake on the CPU of the caller, where the kernel can (Linux 6.6).
    ioctl(listener, _IOW(0x21, 4, uint64_t), 1);
    pthread_t thread;
    CHECK(pthread_create(&thread, NULL, answer_all, &listener) == 0);
}

static void as_it_is(void) {}

// Nanoseconds that one read of a page takes, in a process of its own that has been made ready.
static double price(void (*make_ready)(void)) {
    int ends[2];
    CHECK(pipe(ends) == 0);
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        static char buffer[PAGE];
        int zero = open("/dev/zero", O_RDONLY);
        CHECK(zero >= 0);
        make_ready();
        struct timespec from, to;
        clock_gettime(CLOCK_MONOTONIC, &from);
        for (int i = 0; i < CALLS; i++) CHECK(read(zero, buffer, PAGE) == PAGE);
        clock_gettime(CLOCK_MONOTONIC, &to);
        double took = (double)(to.tv_sec - from.tv_sec) * 1e9 + (double)(to.tv_nsec - from.tv_nsec);
        took /= CALLS;
        _exit(write(ends[1], &took, sizeof took) != sizeof took);
    }
    double took = 0;
    close(ends[1]);
    CHECK(read(ends[0], &took, sizeof took) == sizeof took && waitpid(child, NULL, 0) == child);
    close(ends[0]);
    return took;
}

static int by_size(const void *a, const void *b) {
    double difference = *(const double *)a - *(const double *)b;
    return (difference > 0) - (difference < 0);
}

static void what_it_costs(void) {
    struct {
        const char *name;
        void (*make_ready)(void);
        double took[ROUNDS];
    } ways[] = {{"as it is", as_it_is, {0}},
                {"dispatched to a handler in the process", dispatch_all, {0}},
                {"answered by another thread (seccomp)", notify_all, {0}}};
    for (int round = 0; round < ROUNDS; round++)
        for (size_t way = 0; way < 3; way++) ways[way].took[round] = price(ways[way].make_ready);
    printf("\nread of 4 KiB from /dev/zero, ns: median (least..most) of %d rounds in turn\n", ROUNDS);
    for (size_t way = 0; way < 3; way++) {
        qsort(ways[way].took, ROUNDS, sizeof(double), by_size);
        double *took = ways[way].took, median = took[ROUNDS / 2], plain = ways[0].took[ROUNDS / 2];
        printf("%-44s %6.0f (%.0f..%.0f), %+.0f\n", ways[way].name, median, took[0], took[ROUNDS - 1], median - plain);
    }
}

int main(void) {
    what_fails();
    fflush(stdout);
    what_it_costs();
    return 0;
}
