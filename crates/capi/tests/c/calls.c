/* The calls of the system on memory that is out: files, pipes, sockets. Every byte is verified on the other side. */
#include "check.h"

#include <fcntl.h>
#include <pthread.h>
#include <sys/socket.h>
#include <sys/uio.h>

enum { PAGES = 4000, SEED = 99 };
#define BYTES ((size_t)PAGES * PAGE)

static vswap_arena *arena;

/* A range with content, all of it out. */
static unsigned char *filled(size_t bytes)
{
    unsigned char *range = vswap_map(arena, bytes);
    CHECK(range != NULL);
    fill(range, bytes, SEED);
    move_out(arena, range, bytes, 0);
    return range;
}

static int new_file(void)
{
    FILE *file = tmpfile();
    CHECK(file != NULL);
    int fd = dup(fileno(file));
    CHECK(fd >= 0 && fclose(file) == 0);
    return fd;
}

/* The whole file has the content. */
static void check_file(int fd, size_t bytes)
{
    static unsigned char copy[BYTES + 1];
    CHECK(pread(fd, copy, sizeof copy, 0) == (ssize_t)bytes);
    CHECK(same_until(copy, bytes, SEED) == bytes);
}

/* Without the wrappers these calls fail, so what follows shows something. */
static void without(void)
{
    unsigned char *range = filled(PAGE);
    int fd = new_file();
    errno = 0;
    CHECK(write(fd, range, PAGE) == -1 && errno == EFAULT);
    CHECK(vswap_write(fd, range, PAGE) == PAGE);
    close(fd);
    CHECK(vswap_unmap(arena, range, PAGE) == VSWAP_OK);
}

static void files(void)
{
    unsigned char *from = filled(BYTES), *to = vswap_map(arena, BYTES + PAGE);
    int fd = new_file();
    CHECK(to != NULL);
    CHECK(vswap_write(fd, from, BYTES) == (ssize_t)BYTES);
    check_file(fd, BYTES);
    CHECK(lseek(fd, 0, SEEK_SET) == 0);
    /* Not at a page's start, and more than there is. */
    CHECK(vswap_read(fd, to + 7, BYTES + 100) == (ssize_t)BYTES);
    CHECK(same_until(to + 7, BYTES, SEED) == BYTES);
    CHECK(vswap_read(fd, to, 10) == 0);
    CHECK(vswap_advise(arena, to, BYTES + PAGE, VSWAP_DROP) == VSWAP_OK);
    CHECK(vswap_pread(fd, to, BYTES, 0) == (ssize_t)BYTES);
    CHECK(same_until(to, BYTES, SEED) == BYTES);
    CHECK(vswap_pread(fd, to, 100, BYTES - 50) == 50);
    CHECK(to[0] == content(SEED, BYTES - 50) && to[49] == content(SEED, BYTES - 1) && to[50] == content(SEED, 50));
    move_out(arena, from, BYTES, 0);
    CHECK(ftruncate(fd, 0) == 0);
    CHECK(vswap_pwrite(fd, from + BYTES / 2, BYTES / 2, BYTES / 2) == (ssize_t)(BYTES / 2));
    CHECK(vswap_pwrite(fd, from, BYTES / 2, 0) == (ssize_t)(BYTES / 2));
    check_file(fd, BYTES);
    close(fd);
    CHECK(vswap_unmap(arena, from, BYTES) == VSWAP_OK);
    CHECK(vswap_unmap(arena, to, BYTES + PAGE) == VSWAP_OK);
}

/* Pieces of a range, large and small, one of them empty. The list itself lies in the arena. */
static struct iovec *pieces_of(unsigned char *range, int *count)
{
    static const size_t ends[] = {1, 5000, 5000, 5 * PAGE, 700 * PAGE + 13, 3000 * PAGE, BYTES};
    size_t start = 0;
    *count = sizeof ends / sizeof ends[0];
    struct iovec *list = vswap_malloc(arena, 1000 * sizeof *list);
    CHECK(list != NULL);
    for (int at = 0; at < *count; at++) {
        list[at].iov_base = range + start;
        list[at].iov_len = ends[at] - start;
        start = ends[at];
    }
    move_out(arena, list, 1000 * sizeof *list, 0);
    return list;
}

static void vectors(void)
{
    unsigned char *from = filled(BYTES), *to = vswap_map(arena, BYTES);
    int fd = new_file(), count;
    struct iovec *out = pieces_of(from, &count), *in = pieces_of(to, &count);
    CHECK(vswap_writev(fd, out, count) == (ssize_t)BYTES);
    check_file(fd, BYTES);
    CHECK(lseek(fd, 0, SEEK_SET) == 0);
    CHECK(vswap_readv(fd, in, count) == (ssize_t)BYTES);
    CHECK(same_until(to, BYTES, SEED) == BYTES);
    CHECK(ftruncate(fd, 0) == 0);
    move_out(arena, from, BYTES, 0);
    CHECK(vswap_pwritev(fd, out, count, 0) == (ssize_t)BYTES);
    check_file(fd, BYTES);
    CHECK(vswap_advise(arena, to, BYTES, VSWAP_DROP) == VSWAP_OK);
    CHECK(vswap_preadv(fd, in, count, 0) == (ssize_t)BYTES);
    CHECK(same_until(to, BYTES, SEED) == BYTES);
    errno = 0;
    CHECK(vswap_readv(fd, in, -1) == -1 && errno == EINVAL);
    errno = 0;
    CHECK(vswap_preadv(fd, in, 5000, 0) == -1 && errno == EINVAL);
    CHECK(vswap_writev(fd, NULL, 0) == 0);
    close(fd);
    vswap_free(arena, out);
    vswap_free(arena, in);
    CHECK(vswap_unmap(arena, from, BYTES) == VSWAP_OK);
    CHECK(vswap_unmap(arena, to, BYTES) == VSWAP_OK);
}

/* What a stream has is given at once, however much more was asked for: another part would wait for ever. */
static void streams_do_not_wait(void)
{
    enum { IN_PIPE = 256 * PAGE };
    unsigned char *from = filled(IN_PIPE), *to = vswap_map(arena, 4 * IN_PIPE);
    int ends[2];
    CHECK(to != NULL && pipe(ends) == 0);
    int room = fcntl(ends[1], F_SETPIPE_SZ, IN_PIPE);
    size_t bytes = room < IN_PIPE ? 4 * PAGE : IN_PIPE;
    CHECK(vswap_write(ends[1], from, bytes) == (ssize_t)bytes);
    alarm(60);
    CHECK(vswap_read(ends[0], to, 4 * IN_PIPE) == (ssize_t)bytes);
    CHECK(same_until(to, bytes, SEED) == bytes);
    /* Nothing is there, and nothing can be written: errno is as of the call itself. */
    CHECK(fcntl(ends[0], F_SETFL, O_NONBLOCK) == 0 && fcntl(ends[1], F_SETFL, O_NONBLOCK) == 0);
    errno = 0;
    CHECK(vswap_read(ends[0], to, 10) == -1 && errno == EAGAIN);
    ssize_t written = vswap_write(ends[1], to, 4 * IN_PIPE);
    CHECK(written > 0 && written < 4 * IN_PIPE);
    errno = 0;
    CHECK(vswap_write(ends[1], to, 4 * IN_PIPE) == -1 && errno == EAGAIN);
    alarm(0);
    close(ends[0]);
    close(ends[1]);
    errno = 0;
    CHECK(vswap_read(ends[0], to, 4 * IN_PIPE) == -1 && errno == EBADF);
    /* A device gives as much as is asked for: one part. */
    int device = open("/dev/zero", O_RDONLY);
    CHECK(vswap_read(device, to, 4 * IN_PIPE) == IN_PIPE && is_zero(to, IN_PIPE));
    close(device);
    CHECK(vswap_unmap(arena, from, IN_PIPE) == VSWAP_OK);
    CHECK(vswap_unmap(arena, to, 4 * IN_PIPE) == VSWAP_OK);
}

struct sender {
    int fd;
    unsigned char *from;
};

static void *send_all(void *argument)
{
    struct sender *sender = argument;
    CHECK(vswap_send(sender->fd, sender->from, BYTES, MSG_NOSIGNAL) == (ssize_t)BYTES);
    CHECK(vswap_send(sender->fd, sender->from, BYTES / 2, 0) == (ssize_t)(BYTES / 2));
    return NULL;
}

static void stream_sockets(void)
{
    unsigned char *to = vswap_map(arena, BYTES);
    struct sender sender;
    int ends[2];
    pthread_t thread;
    CHECK(to != NULL && socketpair(AF_UNIX, SOCK_STREAM, 0, ends) == 0);
    sender.fd = ends[1];
    sender.from = filled(BYTES);
    CHECK(pthread_create(&thread, NULL, send_all, &sender) == 0);
    /* All of it at once, then as it comes. */
    CHECK(vswap_recv(ends[0], to, BYTES, MSG_WAITALL) == (ssize_t)BYTES);
    CHECK(same_until(to, BYTES, SEED) == BYTES);
    CHECK(vswap_advise(arena, to, BYTES, VSWAP_DROP) == VSWAP_OK);
    for (size_t got = 0; got < BYTES / 2;) {
        ssize_t count = vswap_recv(ends[0], to + got, BYTES - got, 0);
        CHECK(count > 0);
        got += (size_t)count;
    }
    CHECK(pthread_join(thread, NULL) == 0);
    CHECK(same_until(to, BYTES / 2, SEED) == BYTES / 2);
    close(ends[0]);
    close(ends[1]);
    CHECK(vswap_unmap(arena, sender.from, BYTES) == VSWAP_OK);
    CHECK(vswap_unmap(arena, to, BYTES) == VSWAP_OK);
}

/* Messages are sent whole, with a descriptor beside. All that is passed lies in the arena, and is out. */
static void messages(void)
{
    enum { LENGTH = 30 * PAGE };
    struct together {
        struct msghdr header;
        struct iovec pieces[2];
        union {
            struct cmsghdr align;
            char bytes[CMSG_SPACE(sizeof(int))];
        } control;
    };
    unsigned char *from = filled(LENGTH), *to = vswap_map(arena, LENGTH);
    struct together *message = vswap_map(arena, sizeof *message);
    int ends[2], fd = new_file(), got = -1;
    CHECK(to != NULL && message != NULL && socketpair(AF_UNIX, SOCK_DGRAM, 0, ends) == 0);
    CHECK(vswap_send(ends[1], from, LENGTH, 0) == LENGTH);
    CHECK(vswap_recv(ends[0], to, LENGTH, 0) == LENGTH);
    CHECK(same_until(to, LENGTH, SEED) == LENGTH);

    message->header.msg_iov = message->pieces;
    message->header.msg_iovlen = 2;
    message->header.msg_control = message->control.bytes;
    message->header.msg_controllen = sizeof message->control.bytes;
    message->pieces[0].iov_base = from;
    message->pieces[0].iov_len = 5;
    message->pieces[1].iov_base = from + 5;
    message->pieces[1].iov_len = LENGTH - 5;
    struct cmsghdr *rights = CMSG_FIRSTHDR(&message->header);
    rights->cmsg_level = SOL_SOCKET;
    rights->cmsg_type = SCM_RIGHTS;
    rights->cmsg_len = CMSG_LEN(sizeof fd);
    memcpy(CMSG_DATA(rights), &fd, sizeof fd);
    move_out(arena, message, sizeof *message, 0);
    CHECK(vswap_sendmsg(ends[1], &message->header, 0) == LENGTH);

    memset(&message->control, 0, sizeof message->control);
    message->pieces[0].iov_base = to;
    message->pieces[1].iov_base = to + 5;
    CHECK(vswap_advise(arena, to, LENGTH, VSWAP_DROP) == VSWAP_OK);
    move_out(arena, message, sizeof *message, 0);
    CHECK(vswap_recvmsg(ends[0], &message->header, 0) == LENGTH);
    CHECK(same_until(to, LENGTH, SEED) == LENGTH);
    CHECK(message->header.msg_iov == message->pieces && message->header.msg_iovlen == 2);
    memcpy(&got, CMSG_DATA(CMSG_FIRSTHDR(&message->header)), sizeof got);
    CHECK(write(got, "hello", 5) == 5 && lseek(fd, 0, SEEK_END) == 5);
    errno = 0;
    CHECK(vswap_sendmsg(ends[1], NULL, 0) == -1 && errno == EFAULT);
    close(got);
    close(fd);
    close(ends[0]);
    close(ends[1]);
    CHECK(vswap_unmap(arena, message, sizeof *message) == VSWAP_OK);
    CHECK(vswap_unmap(arena, from, LENGTH) == VSWAP_OK);
    CHECK(vswap_unmap(arena, to, LENGTH) == VSWAP_OK);
}

/* Pins until no more can be. How much that is changes with what the pool takes. */
static size_t pin_most(unsigned char *held, size_t steps, size_t step_bytes)
{
    while (vswap_pin(arena, held + steps * step_bytes, step_bytes) == VSWAP_OK)
        steps++;
    CHECK(vswap_error_code() == VSWAP_ERROR_PIN_LIMIT);
    return steps;
}

/* With hardly anything left to pin a file is written in small parts. A message is refused, and never cut. */
static void little_to_pin(void)
{
    enum { STEP = 8 * PAGE, LENGTH = 40 * PAGE };
    unsigned char *held = vswap_map(arena, 8 * MIB), *from = filled(BYTES);
    int ends[2], fd = new_file();
    size_t steps = pin_most(held, 0, STEP);
    CHECK(held != NULL && socketpair(AF_UNIX, SOCK_DGRAM, 0, ends) == 0);
    for (int tries = 0; vswap_send(ends[1], from, LENGTH, MSG_DONTWAIT) != -1; tries++) {
        CHECK(tries < 100 && recv(ends[0], NULL, 0, MSG_DONTWAIT) == 0);
        steps = pin_most(held, steps, STEP);
    }
    CHECK(errno == ENOMEM && vswap_error_code() == VSWAP_ERROR_PIN_LIMIT);
    CHECK(recv(ends[0], NULL, 0, MSG_DONTWAIT) == -1 && errno == EAGAIN);
    for (size_t done = 0; done < BYTES;) {
        ssize_t count = vswap_write(fd, from + done, BYTES - done);
        CHECK(count > 0 || (errno == ENOMEM && steps > 10));
        done += count > 0 ? (size_t)count : 0;
        if (done < BYTES) {
            steps--;
            CHECK(vswap_unpin(arena, held + steps * STEP, STEP) == VSWAP_OK);
        }
    }
    check_file(fd, BYTES);
    CHECK(figures(arena).pinned_bytes == steps * STEP && steps > 10);
    while (steps > 0) {
        steps--;
        CHECK(vswap_unpin(arena, held + steps * STEP, STEP) == VSWAP_OK);
    }
    CHECK(vswap_send(ends[1], from, LENGTH, 0) == LENGTH);
    close(fd);
    close(ends[0]);
    close(ends[1]);
    CHECK(vswap_unmap(arena, held, 8 * MIB) == VSWAP_OK);
    CHECK(vswap_unmap(arena, from, BYTES) == VSWAP_OK);
}

/* Memory of no arena is passed as it is. */
static void elsewhere(void)
{
    static unsigned char large[3 * 256 * PAGE];
    int fd = new_file(), device = open("/dev/zero", O_RDONLY);
    fill(large, sizeof large, SEED);
    CHECK(vswap_write(fd, large, sizeof large) == (ssize_t)sizeof large);
    check_file(fd, sizeof large);
    CHECK(vswap_read(device, large, sizeof large) == (ssize_t)sizeof large);
    errno = 0;
    CHECK(vswap_write(fd, NULL, 10) == -1 && errno == EFAULT);
    CHECK(vswap_write(fd, NULL, 0) == 0);
    close(device);
    close(fd);
}

int main(void)
{
    arena = small_arena();
    without();
    files();
    vectors();
    streams_do_not_wait();
    stream_sockets();
    messages();
    little_to_pin();
    elsewhere();
    CHECK(figures(arena).pinned_bytes == 0 && figures(arena).allocated_bytes <= 60 * PAGE);
    vswap_destroy(arena);
    puts("all calls passed all bytes");
    return 0;
}
