// A program of 32 bits without a C library: forks, and ends with 7 if its child has ended with 42.
static long call32(long number, long first, long second, long third) {
    long result;
    __asm__ volatile("int $0x80"
                     : "=a"(result)
                     : "a"(number), "b"(first), "c"(second), "d"(third)
                     : "memory");
    return result;
}

enum { EXIT = 1, FORK = 2, WAITPID = 7 };

void _start(void) {
    long child = call32(FORK, 0, 0, 0);
    if (child == 0) call32(EXIT, 42, 0, 0);
    int status = 0;
    call32(WAITPID, child, (long)&status, 0);
    call32(EXIT, child > 0 && status == 42 << 8 ? 7 : 1, 0, 0);
    __builtin_unreachable();
}
