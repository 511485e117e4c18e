// Fills 160 MiB with numbers that compress, and reads all of them back, twice.
#include <stdio.h>
#include <stdlib.h>

enum { NUMBERS = 160 * 1024 * 1024 / sizeof(unsigned) };

int main(void) {
    unsigned *held = malloc(NUMBERS * sizeof *held);
    if (held == NULL) {
        perror("malloc");
        return 1;
    }
    for (unsigned at = 0; at < NUMBERS; at++)
        held[at] = at / 16 * 7;
    for (int round = 0; round < 2; round++)
        for (unsigned at = 0; at < NUMBERS; at++)
            if (held[at] != at / 16 * 7) {
                printf("number %u is wrong\n", at);
                return 1;
            }
    puts("all right");
    return 0;
}
