// Fills 160 MiB with numbers that compress, and reads all of them back: twice, or as often as its argument says. With
// another argument than a number it says when it has filled them, and waits for a line of input.
#include <stdio.h>
#include <stdlib.h>

enum { NUMBERS = 160 * 1024 * 1024 / sizeof(unsigned) };

int main(int arguments, char **argument) {
    int rounds = arguments > 1 ? atoi(argument[1]) : 2;
    unsigned *held = malloc(NUMBERS * sizeof *held);
    if (held == NULL) {
        perror("malloc");
        return 1;
    }
    for (unsigned at = 0; at < NUMBERS; at++)
        held[at] = at / 16 * 7;
    if (rounds == 0) {
        rounds = 2;
        puts("filled");
        fflush(stdout);
        getchar();
    }
    for (int round = 0; round < rounds; round++)
        for (unsigned at = 0; at < NUMBERS; at++)
            if (held[at] != at / 16 * 7) {
                printf("number %u is wrong\n", at);
                return 1;
            }
    puts("all right");
    return 0;
}
