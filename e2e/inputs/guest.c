// A virtual machine (KVM) whose memory is private memory of this program. The guest copies pages, and the program
// checks all of them.
//
// usage: guest SECONDS. Exits with 1 and says so if a byte is wrong, and with 3 where there is no KVM.
#include <fcntl.h>
#include <linux/kvm.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

// A guest in real mode reaches 1 MiB. Its code is on the first page.
enum { PAGE = 4096, WORDS = PAGE / 8, PAGES = 240 };

static uint64_t *memory;
static uint64_t tags[PAGES];

static uint64_t content(uint64_t tag, uint64_t at) {
    uint64_t x = tag * 0x9e3779b97f4a7c15 + at;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
    return at % 4 ? tag << 16 | at : x | 1;
}

static void fill(uint64_t page, uint64_t tag) {
    tags[page] = tag;
    for (uint64_t at = 0; at < WORDS; at++) memory[page * WORDS + at] = content(tag, at);
}

static void check(const char *what, uint64_t page) {
    for (uint64_t at = 0; at < WORDS; at++) {
        uint64_t found = ((volatile uint64_t *)memory)[page * WORDS + at];
        if (found == content(tags[page], at)) continue;
        printf("WRONG %s: page %lu word %lu: %#lx, not %#lx\n", what, page, at, found, content(tags[page], at));
        exit(1);
    }
}

static void segment(struct kvm_segment *which, uint64_t page) {
    which->base = page * PAGE;
    which->selector = (uint16_t)(which->base >> 4);
}

int main(int argc, char **argv) {
    static const uint8_t code[] = {0xfc, 0xf3, 0xa5, 0xf4}; // cld; rep movsw; hlt
    if (argc != 2) return 2;
    int kvm = open("/dev/kvm", O_RDWR | O_CLOEXEC);
    int machine = kvm < 0 ? -1 : ioctl(kvm, KVM_CREATE_VM, 0);
    if (machine < 0) return 3;
    memory = mmap(NULL, PAGES * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) return 2;
    memcpy(memory, code, sizeof code);
    struct kvm_userspace_memory_region region = {.memory_size = PAGES * PAGE, .userspace_addr = (uintptr_t)memory};
    if (ioctl(machine, KVM_SET_USER_MEMORY_REGION, &region)) return 3;
    int cpu = ioctl(machine, KVM_CREATE_VCPU, 0);
    int bytes = ioctl(kvm, KVM_GET_VCPU_MMAP_SIZE, 0);
    struct kvm_run *run = mmap(NULL, (size_t)bytes, PROT_READ | PROT_WRITE, MAP_SHARED, cpu, 0);
    struct kvm_sregs segments;
    if (cpu < 0 || run == MAP_FAILED || ioctl(cpu, KVM_GET_SREGS, &segments)) return 3;
    uint64_t tag = 1, state = 1, copies = 0;
    for (uint64_t page = 1; page < PAGES; page++) fill(page, tag++);
    for (time_t end = time(NULL) + atoi(argv[1]); time(NULL) < end; copies++) {
        state = state * 6364136223846793005 + 1442695040888963407;
        uint64_t from = 1 + (state >> 33) % (PAGES - 1), to = 1 + (state >> 13) % (PAGES - 1);
        segment(&segments.cs, 0);
        segment(&segments.ds, from);
        segment(&segments.es, to);
        struct kvm_regs registers = {.rflags = 2, .rcx = PAGE / 2};
        if (ioctl(cpu, KVM_SET_SREGS, &segments) || ioctl(cpu, KVM_SET_REGS, &registers)) return 2;
        // A signal may end it early.
        do {
            if (ioctl(cpu, KVM_RUN, 0) && run->exit_reason != KVM_EXIT_INTR) return 2;
        } while (run->exit_reason == KVM_EXIT_INTR);
        if (run->exit_reason != KVM_EXIT_HLT) {
            printf("the guest stopped for reason %u\n", run->exit_reason);
            return 2;
        }
        tags[to] = tags[from];
        check("page that the guest copied", to);
        check("page that the guest read", from);
        fill(1 + (state >> 43) % (PAGES - 1), tag++);
        if (copies % 64 == 0) for (uint64_t page = 1; page < PAGES; page++) check("page of the guest", page);
        // Time for pages to go out.
        if (copies % 16 == 0) usleep(2000);
    }
    for (uint64_t page = 1; page < PAGES; page++) check("page of the guest", page);
    printf("%lu copies\n", copies);
    return 0;
}
