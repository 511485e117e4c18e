// Ends by SYS_exit of its threads, not exit_group.
//
// usage: exits FORM, where FORM is alone, child, first (the main thread before another) or last (after it).
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

static void *other(void *argument) {
    usleep(300000);
    syscall(SYS_exit, *(int *)argument);
    return NULL;
}

int main(int argc, char **argv) {
    static int status = 5;
    pthread_t thread;
    if (argc != 2) return 99;
    if (!strcmp(argv[1], "child")) {
        pid_t child = fork();
        if (child) {
            int ended = 0;
            waitpid(child, &ended, 0);
            return WIFEXITED(ended) ? WEXITSTATUS(ended) + 1 : 98;
        }
    } else if (strcmp(argv[1], "alone")) {
        if (pthread_create(&thread, NULL, other, &status)) return 97;
        if (!strcmp(argv[1], "last")) usleep(900000);
    }
    syscall(SYS_exit, 7);
    return 96;
}
