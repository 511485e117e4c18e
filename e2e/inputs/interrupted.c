// Signals come often, by handlers without SA_RESTART, while the program changes its memory by calls that never end with
// EINTR. Calls that do end with EINTR still do, and handlers see what they see without vswap.
//
// usage: interrupted MIB ROUNDS [attached]
//
// Where the agent was attached, a handler that is only asked for may have another address, which works as well.
//
// It prints "right" and ends with 0, or says what is wrong and ends with 1.
#define _GNU_SOURCE
#include <errno.h>
#include <setjmp.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <ucontext.h>
#include <unistd.h>

#define MUST(what) \
    do { \
        if (!(what)) wrong(#what, __LINE__); \
    } while (0)

enum { PERIOD_US = 50, PIECE = 64 << 10 };

static int is_attached;
static volatile sig_atomic_t alarms;
static sigjmp_buf place;
static uint64_t *words;
static size_t count;

// The header advises against it, and programs use it.
int interrupts(int signal, int flag) __asm__("siginterrupt");

static void wrong(const char *what, int line) {
    printf("line %d: not so: %s (errno %d)\n", line, what, errno);
    fflush(stdout);
    _exit(1);
}

static void on_alarm(int signal) {
    if (signal == SIGALRM) alarms++;
}
static volatile sig_atomic_t others;
static void other(int signal) { others += signal == SIGUSR2; }
static void jump(int signal) { siglongjmp(place, signal); }

static volatile sig_atomic_t detailed;
static void on_details(int signal, siginfo_t *info, void *context) {
    ucontext_t *was = context;
    detailed = signal == SIGUSR1 && info->si_pid == getpid() && was->uc_mcontext.gregs[REG_RSP] != 0;
}

static void install(int signal, void (*handler)(int), int flags) {
    struct sigaction action = {.sa_handler = handler, .sa_flags = flags};
    MUST(sigaction(signal, &action, NULL) == 0);
}

// Is this the handler that was installed? While the agent is being attached the program may be told another one.
static int is(void (*found)(int), void (*installed)(int)) {
    int is_some = found != SIG_DFL && found != SIG_IGN && found != SIG_ERR;
    return found == installed || (is_attached && is_some);
}

static int is_asked_for(int signal, void (*handler)(int), int flags) {
    struct sigaction now;
    MUST(sigaction(signal, NULL, &now) == 0);
    return is(now.sa_handler, handler) && (now.sa_flags & (SA_NODEFER | SA_RESTART)) == flags;
}

// The program gets back what it has installed, in whatever way.
static void handlers_are_its_own(void) {
    struct sigaction was, now;
    install(SIGUSR2, on_alarm, SA_NODEFER);
    MUST(is_asked_for(SIGUSR2, on_alarm, SA_NODEFER));
    MUST(is(signal(SIGUSR2, other), on_alarm));
    MUST(is_asked_for(SIGUSR2, other, SA_RESTART));
    MUST(interrupts(SIGUSR2, 1) == 0);
    MUST(is_asked_for(SIGUSR2, other, 0));
    MUST(interrupts(SIGUSR2, 0) == 0);
    MUST(is(signal(SIGUSR2, SIG_IGN), other) && signal(SIGUSR2, SIG_DFL) == SIG_IGN);
    MUST(signal(SIGUSR2, SIG_DFL) == SIG_DFL && signal(0, other) == SIG_ERR && errno == EINVAL);

    // Saved, replaced and put back.
    install(SIGUSR2, other, SA_NODEFER);
    MUST(sigaction(SIGUSR2, NULL, &was) == 0);
    install(SIGUSR2, jump, 0);
    MUST(sigaction(SIGUSR2, &was, &now) == 0 && is(now.sa_handler, jump));
    int before = others;
    MUST(raise(SIGUSR2) == 0 && others == before + 1);
    MUST(is(signal(SIGUSR2, SIG_DFL), other));
    errno = 0;
    // The kernel sets the handler before it finds that it cannot say which it was.
    struct { void *handler; unsigned long flags; void *restorer; unsigned long mask; } raw = {other, 0x04000000, 0, 0};
    MUST(syscall(SYS_rt_sigaction, SIGUSR2, &raw, (void *)8, 8L) == -1 && errno == EFAULT);
    MUST(syscall(SYS_rt_sigaction, SIGUSR2, (void *)8, NULL, 8L) == -1 && errno == EFAULT);
    MUST(syscall(SYS_rt_sigaction, SIGUSR2, &raw, NULL, 4L) == -1 && errno == EINVAL);
    MUST(is(signal(SIGUSR2, SIG_DFL), other));

    struct sigaction bad = {.sa_handler = other};
    MUST(sigaction(SIGKILL, &bad, NULL) == -1 && errno == EINVAL);
    MUST(sigaction(1000, &bad, NULL) == -1 && errno == EINVAL);

    struct sigaction details = {.sa_sigaction = on_details, .sa_flags = SA_SIGINFO | SA_RESETHAND};
    MUST(sigaction(SIGUSR1, &details, &was) == 0 && was.sa_handler == SIG_DFL);
    MUST(kill(getpid(), SIGUSR1) == 0 && detailed);
    MUST(sigaction(SIGUSR1, NULL, &was) == 0 && was.sa_handler == SIG_DFL);

    // On a stack of its own, as small as is allowed.
    stack_t stack = {.ss_sp = malloc(SIGSTKSZ), .ss_size = (size_t)SIGSTKSZ}, none = {.ss_flags = SS_DISABLE};
    MUST(sigaltstack(&stack, NULL) == 0);
    install(SIGUSR1, jump, SA_ONSTACK);
    int came = sigsetjmp(place, 1);
    if (!came) raise(SIGUSR1);
    MUST(came == SIGUSR1 && sigaltstack(&none, NULL) == 0);
    MUST(is(signal(SIGUSR1, SIG_DFL), jump));
}

#ifdef __GLIBC__
static char *move_break(intptr_t bytes) { return sbrk(bytes); }
#else
// musl has no brk for programs. Not inlined, so that the number is where libc has it.
__attribute__((noinline)) static char *break_at(char *to) {
    char *is;
    __asm__ volatile("syscall" : "=a"(is) : "a"(SYS_brk), "D"(to) : "rcx", "r11", "memory");
    return is;
}

static char *move_break(intptr_t bytes) {
    char *was = break_at(0);
    return break_at(was + bytes) == was + bytes ? was : (char *)-1;
}
#endif

static void change_memory(size_t round) {
    char *end = move_break(4096 * (intptr_t)(1 + round % 8));
    MUST(end != (char *)-1 && move_break(0) > end && move_break(0) < end + (1 << 20));
    *(volatile char *)end = 1;
    if (round % 1024 == 1023) MUST(move_break(-(1 << 20)) != (char *)-1);
    char *piece = mmap(NULL, PIECE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    MUST(piece != MAP_FAILED);
    memset(piece, (int)round, PIECE);
    char *moved = mremap(piece, PIECE, 2 * PIECE, MREMAP_MAYMOVE);
    MUST(moved != MAP_FAILED && moved[PIECE - 1] == (char)round && moved[PIECE] == 0);
    MUST(madvise(moved, PIECE, MADV_FREE) == 0);
    MUST(munmap(moved, 2 * PIECE) == 0);
    if (round % 64 == 0) {
        pid_t child = fork();
        MUST(child >= 0);
        if (child == 0) _exit(7);
        int status;
        while (waitpid(child, &status, 0) != child) MUST(errno == EINTR);
        MUST(WIFEXITED(status) && WEXITSTATUS(status) == 7);
    }
}

int main(int argc, char **argv) {
    if (argc != 3 && argc != 4) return 2;
    is_attached = argc == 4;
    install(SIGALRM, on_alarm, 0);
    handlers_are_its_own();
    count = strtoul(argv[1], NULL, 10) << 17;
    words = mmap(NULL, count * 8, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    MUST(words != MAP_FAILED);
    for (size_t at = 0; at < count; at++) words[at] = at * 0x9e3779b97f4a7c15;

    handlers_are_its_own();
    struct itimerval often = {{0, PERIOD_US}, {0, PERIOD_US}}, never = {{0, 0}, {0, 0}};
    MUST(setitimer(ITIMER_REAL, &often, NULL) == 0);
    for (size_t round = 0; round < strtoul(argv[2], NULL, 10); round++) change_memory(round);
    MUST(alarms > 0);
    // What waits is still cut short.
    int ends[2];
    char byte;
    MUST(pipe(ends) == 0 && read(ends[0], &byte, 1) == -1 && errno == EINTR);
    MUST(setitimer(ITIMER_REAL, &never, NULL) == 0);
    for (size_t at = 0; at < count; at++) MUST(words[at] == at * 0x9e3779b97f4a7c15);
    puts("right");
    return 0;
}
