/* Does with memory what may not be done, as its argument says. The process ends by SIGABRT, with a message. */
#include "check.h"

int main(int count, char **arguments)
{
    vswap_arena *arena = small_arena();
    unsigned char *small = vswap_malloc(arena, 100), *beside = vswap_malloc(arena, 100);
    unsigned char *large = vswap_malloc(arena, 5 * PAGE), *range = vswap_map(arena, 5 * PAGE);
    unsigned char *foreign = malloc(100);
    const char *what = count == 2 ? arguments[1] : "";
    CHECK(small != NULL && beside != NULL && large != NULL && range != NULL && foreign != NULL);
    if (strcmp(what, "small-twice") == 0) {
        vswap_free(arena, small);
        vswap_free(arena, small);
    } else if (strcmp(what, "large-twice") == 0) {
        vswap_free(arena, large);
        vswap_free(arena, large);
    } else if (strcmp(what, "inside-small") == 0) {
        vswap_free(arena, small + 16);
    } else if (strcmp(what, "inside-large") == 0) {
        vswap_free(arena, large + PAGE);
    } else if (strcmp(what, "range") == 0) {
        vswap_free(arena, range);
    } else if (strcmp(what, "foreign") == 0) {
        vswap_free(arena, foreign);
    } else if (strcmp(what, "no-arena") == 0) {
        vswap_free(NULL, small);
    } else if (strcmp(what, "realloc-freed") == 0) {
        vswap_free(arena, small);
        small = vswap_realloc(arena, small, 1000);
    } else if (strcmp(what, "realloc-foreign") == 0) {
        foreign = vswap_realloc(arena, foreign, 1000);
    } else {
        fprintf(stderr, "no such misuse: '%s'\n", what);
        return 2;
    }
    puts("went on");
    return 0;
}
