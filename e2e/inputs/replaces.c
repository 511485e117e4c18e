// A program that becomes itself once, so many microseconds after it has begun, when the filter may just be being
// installed. It does so by the bare instruction, which no library sees. Prints "right" at the end.
//
// usage: replaces US
#define _GNU_SOURCE
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

static long now_us(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec * 1000000 + time.tv_nsec / 1000;
}

int main(int argc, char **argv) {
    long since = now_us(), wait_us = argc > 1 ? atol(argv[1]) : 0;
    uint64_t *words = mmap(NULL, 64 << 12, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (words == MAP_FAILED) return 1;
    for (int page = 0; page < 64; page++) words[page * 512] = (uint64_t)page;
    while (now_us() - since < wait_us) {}
    for (int page = 0; page < 64; page++)
        if (words[page * 512] != (uint64_t)page) return 2;
    if (wait_us == 0) {
        puts("right");
        return 0;
    }
    char *arguments[] = {argv[0], NULL};
    long returned;
    __asm__ volatile("syscall"
                     : "=a"(returned)
                     : "a"(SYS_execve), "D"("/proc/self/exe"), "S"(arguments), "d"(environ)
                     : "rcx", "r11", "memory");
    return 3;
}
