# Programs under AddressSanitizer, ThreadSanitizer, LeakSanitizer and UndefinedBehaviorSanitizer: those that are right
# must end well, those with a mistake must be told of it, by its name.
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
cd "$place" || exit 1
cat >program.cc <<'END'
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <string>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>
#include <vector>
static long shared;
static volatile char sink;
static unsigned long fill_and_check(unsigned seed) {
    std::vector<std::vector<uint32_t>> blocks;
    for (unsigned i = 0; i < 512; i++) blocks.emplace_back(16384, seed * 7919 + i);
    std::map<std::string, unsigned> names;
    for (unsigned i = 0; i < 40000; i++) names["name " + std::to_string(i)] = i;
    unsigned long wrong = 0;
    for (int round = 0; round < 3; round++)
        for (unsigned i = 0; i < 512; i++)
            for (uint32_t word : blocks[i]) wrong += word != seed * 7919 + i;
    for (auto &[name, i] : names) wrong += name != "name " + std::to_string(i);
    return wrong;
}
int main(int, char **words) {
    std::string what = words[1];
    unsigned long wrong = 0;
    if (what == "clean") wrong = fill_and_check(1);
    if (what == "threads") {
        unsigned long found[3] = {};
        std::vector<std::thread> all;
        for (unsigned i = 0; i < 3; i++) all.emplace_back([i, &found] { found[i] = fill_and_check(i); });
        for (auto &one : all) one.join();
        wrong = found[0] + found[1] + found[2];
    }
    if (what == "forks") {
        std::vector<int> numbers(4 << 20, 9);
        for (int i = 0; i < 3; i++) if (!fork()) {
            for (int number : numbers) if (number != 9) _exit(1);
            _exit(fill_and_check(i) != 0);
        }
        for (int i = 0, status; i < 3; i++) { wait(&status); wrong += status != 0; }
    }
    if (what == "race") {
        fill_and_check(1);
        auto add = [] { for (int i = 0; i < 100000; i++) shared++; };
        std::thread a(add), b(add);
        a.join(), b.join();
    }
    if (what == "use-after-free") {
        char *gone = (char *)malloc(100);
        free(gone);
        fill_and_check(1);
        sink = gone[3];
    }
    if (what == "overflow") { char *small = (char *)malloc(100); fill_and_check(1); small[100 + sink] = 1; }
    if (what == "double-free") { char *twice = (char *)malloc(100); free(twice); fill_and_check(1); free(twice); }
    if (what == "stack") { char local[16]; fill_and_check(1); memset(local, 1, 17 + sink); sink = local[3]; }
    if (what == "leak") { void *volatile lost = malloc(12345); fill_and_check(1); lost = nullptr; }
    if (what == "shift") { fill_and_check(1); int far = 40 + sink; printf("%d\n", 1 << far); }
    printf("%lu wrong\n", wrong);
    return wrong != 0;
}
END
one() {
  sanitizer=$1 what=$2 wanted=$3
  timeout 200 ./$sanitizer "$what" >said 2>&1
  status=$?
  if grep -q "$wanted" said; then
    echo "ok $sanitizer-$what"
  else
    echo "not ok $sanitizer-$what"
    echo "# status $status"
    tail -n 12 said
  fi
}
for sanitizer in address thread undefined leak; do
  g++ -std=c++17 -O1 -g -pthread -fsanitize=$sanitizer -o $sanitizer program.cc 2>build || { cat build; exit 1; }
  for what in clean threads forks; do one $sanitizer $what '^0 wrong'; done
done
one address use-after-free heap-use-after-free
one address overflow heap-buffer-overflow
one address double-free 'double-free'
one address stack stack-buffer-overflow
one address leak '12345 byte(s)'
one leak leak '12345 byte(s)'
one thread race 'data race'
one undefined shift 'shift exponent'
