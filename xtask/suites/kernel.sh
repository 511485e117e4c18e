# The kernel's own tests of what a process asks of its memory, its children, threads, namespaces, seccomp and signals:
# tools/testing/selftests of the source that Debian has, each as one program. `kernel.sh build` makes them.
# A case is a line of a test that speaks TAP, and the exit status of each test.
# Not here: tests that change settings of the machine, want huge pages, a driver or arguments, or take a minute.
tests=$PWD/tools/testing/selftests
elsewhere=' vm-compaction_test vm-khugepaged vm-map_hugetlb vm-thuge-gen vm-write_to_hugetlbfs vm-userfaultfd
 vm-transhuge-stress vm-va_128TBswitch vm-hugepage-mmap vm-hugepage-mremap vm-hugepage-shm vm-hugepage-vmemmap
 vm-hugetlb-madvise timens-gettime_perf timens-exec x86-mov_ss_trap prctl-disable-tsc-ctxt-sw-stress-test
 prctl-disable-tsc-on-off-stress-test prctl-disable-tsc-test '

build() {
  mkdir -p made
  cd "$tests" || exit 1
  for source in vm/*.c clone3/*.c pidfd/*.c seccomp/seccomp_bpf.c mincore/*.c membarrier/*.c sigaltstack/*.c prctl/*.c \
    ptrace/*.c exec/null-argv.c exec/recursion-depth.c futex/functional/*.c kcmp/*.c proc/*.c timens/*.c x86/*.c; do
    name=$(echo "${source%.c}" | tr / -)
    with=
    case $source in vm/vm_util.c) continue ;; vm/*) with=vm/vm_util.c ;; esac
    gcc -w -O1 -D_GNU_SOURCE -I. -Ifutex/include -isystem ../../include/uapi -o "../../../made/$name" "$source" $with \
      -lpthread -lrt -lcap -ldl -lm || echo "not built: $name"
  done
  # A dozen want what is not here: numa.h, 32 bits, generated headers.
  built=$(ls ../../../made | wc -l)
  [ "$built" -gt 95 ] || { echo "only $built programs were built"; exit 1; }
}

run() {
  for program in "$PWD"/made/*; do
    name=${program##*/}
    case $elsewhere in *[[:space:]]"$name"[[:space:]]*) continue ;; esac
    setsid timeout -k 5 90 "$program" >said 2>&1 </dev/null &
    group=$!
    wait $group
    status=$?
    # A test that fails may leave processes behind that wait for ever.
    kill -KILL -- -$group 2>/dev/null
    sed -n "s/^\(not ok\|ok\) [0-9]* *\(.*\)/\1 $name: \2/p" said | sed 's/[0-9]\{3,\}/N/g; s/0x[0-9a-f]*/N/g'
    case $status in
      0) echo "ok $name ends" ;;
      4) echo "ok $name ends # SKIP" ;;
      *) echo "not ok $name ends"; echo "# status $status"; tail -n 6 said | sed 's/^/# /' ;;
    esac
  done
}

if [ "$1" = build ]; then build; else run; fi
