/*
 * Instructions that need two pages each, where the run has hardly any to give: words across the ends of pages, read and
 * written by two threads. Most of the memory cannot be moved, because a userfaultfd of the program's own watches it.
 * The rest is noise. Prints "filled", and begins when the file that it is given exists.
 */
#include <fcntl.h>
#include <linux/userfaultfd.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { PAGE = 4096, HELD = 24 << 20, NOISE = 32 << 20, PAGES = NOISE / PAGE, ROUNDS = 1000, LOOKS = 6000 };

struct task {
	unsigned char *noise;
	uint64_t seed;
	int is_wrong;
};

static uint64_t mixed(uint64_t value)
{
	value = (value ^ value >> 30) * 0xbf58476d1ce4e5b9u;
	value = (value ^ value >> 27) * 0x94d049bb133111ebu;
	return value ^ value >> 31;
}

static unsigned char *map(size_t bytes)
{
	return mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
}

/* Fails where the program may have no userfaultfd. */
static int hold(void)
{
	unsigned char *held = map(HELD);
	int uffd = syscall(SYS_userfaultfd, O_CLOEXEC);
	struct uffdio_api api = {.api = UFFD_API};
	struct uffdio_register watched = {.range = {(uintptr_t)held, HELD}, .mode = UFFDIO_REGISTER_MODE_WP};

	memset(held, 1, HELD);
	return ioctl(uffd, UFFDIO_API, &api) || ioctl(uffd, UFFDIO_REGISTER, &watched);
}

/* What the word across the end of a page holds: half of the last word of the page, half of the first of the next. */
static uint64_t expected(size_t page)
{
	uint64_t last = mixed((page + 1) * (PAGE / 8) - 1), first = mixed((page + 1) * (PAGE / 8));

	return last >> 32 | first << 32;
}

static void *work(void *argument)
{
	struct task *task = argument;

	for (uint64_t round = 0; round < ROUNDS; round++) {
		size_t page = mixed(task->seed * ROUNDS + round) % (PAGES - 1);
		volatile uint64_t *place = (void *)(task->noise + (page + 1) * PAGE - 4);

		if (*place != expected(page))
			task->is_wrong = 1;
		/* The same bytes again, which takes both pages for writing. */
		*place = expected(page);
	}
	return NULL;
}

int main(int argc, char **argv)
{
	struct task tasks[2] = {{.seed = 1}, {.seed = 2}};
	pthread_t threads[2];
	unsigned char *noise = map(NOISE);

	if (argc != 2 || hold()) {
		perror("two_pages");
		return 2;
	}
	for (size_t word = 0; word < NOISE / 8; word++)
		((uint64_t *)noise)[word] = mixed(word);
	puts("filled");
	fflush(stdout);
	for (int look = 0; access(argv[1], F_OK) && look < LOOKS; look++)
		usleep(10000);
	for (int at = 0; at < 2; at++) {
		tasks[at].noise = noise;
		if (pthread_create(&threads[at], NULL, work, &tasks[at]))
			return 2;
	}
	for (int at = 0; at < 2; at++)
		pthread_join(threads[at], NULL);
	for (size_t word = 0; word < NOISE / 8; word++)
		if (((uint64_t *)noise)[word] != mixed(word))
			return 1;
	return tasks[0].is_wrong || tasks[1].is_wrong;
}
