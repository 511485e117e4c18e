// Signals come often, by handlers without SA_RESTART, while the program changes its memory by calls that never end with
// EINTR. Calls that do end with EINTR still do, and handlers see what they see without vswap.
//
// usage: interrupted MIB ROUNDS
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
#include <sys/time.h>
#include <sys/wait.h>
#include <ucontext.h>
#include <unistd.h>

#define MUST(what) \
    do { \
        if (!(what)) wrong(#what, __LINE__); \
    } while (0)

enum { PERIOD_US = 200, PIECE = 64 << 10 };

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
static void other(int signal) { (void)signal; }
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

// The program gets back what it has installed, in whatever way.
static void handlers_are_its_own(void) {
    struct sigaction was;
    install(SIGUSR2, on_alarm, SA_NODEFER);
    MUST(sigaction(SIGUSR2, NULL, &was) == 0 && was.sa_handler == on_alarm);
    MUST((was.sa_flags & (SA_NODEFER | SA_RESTART)) == SA_NODEFER);
    MUST(signal(SIGUSR2, other) == on_alarm);
    MUST(sigaction(SIGUSR2, NULL, &was) == 0 && was.sa_handler == other && was.sa_flags & SA_RESTART);
    MUST(interrupts(SIGUSR2, 1) == 0);
    MUST(sigaction(SIGUSR2, NULL, &was) == 0 && was.sa_handler == other && !(was.sa_flags & SA_RESTART));
    MUST(signal(SIGUSR2, SIG_IGN) == other && signal(SIGUSR2, SIG_DFL) == SIG_IGN);
    MUST(signal(SIGUSR2, SIG_DFL) == SIG_DFL && signal(0, other) == SIG_ERR && errno == EINVAL);
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
}

static void change_memory(size_t round) {
    void *end = sbrk(4096 * (intptr_t)(1 + round % 8));
    MUST(end != (void *)-1 && sbrk(0) > end && (uintptr_t)sbrk(0) < (uintptr_t)end + (1 << 20));
    *(volatile char *)end = 1;
    if (round % 1024 == 1023) MUST(brk((char *)sbrk(0) - (1 << 20)) == 0);
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
    if (argc != 3) return 2;
    handlers_are_its_own();
    count = strtoul(argv[1], NULL, 10) << 17;
    words = mmap(NULL, count * 8, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    MUST(words != MAP_FAILED);
    for (size_t at = 0; at < count; at++) words[at] = at * 0x9e3779b97f4a7c15;

    install(SIGALRM, on_alarm, 0);
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
