//! The suites, cheap and telling ones first. The limits make much of the memory go out. Where a suite is many small
//! processes that all fit, everything is evicted again and again instead.
//!
//! `part` says what of a suite is run. Nothing is left out because it fails under vswap.

use super::Suite;
use super::cases::Reading;

/// Every suite.
pub const SUITES: &[Suite] = &[
    Suite {
        name: "cpython",
        part: "regrtest 3.11: mmap, threads, processes, signals, polling",
        packages: &["libpython3.11-testsuite", "python3.11"],
        source: None,
        prepare: "",
        run: "mkdir -p temp && TMPDIR=$PWD/temp /usr/bin/python3.11 -m test -v --timeout 400 \
              test_mmap test_thread test_threading test_threading_local test_threadsignals test_signal \
              test_fork1 test_wait3 test_wait4 test_posix test_os test_resource test_select test_selectors \
              test_poll test_epoll test_faulthandler test_atexit test_queue test_ctypes test_subprocess",
        reading: Reading::Unittest,
        ram: "1G",
        evict: Some("50ms"),
        minutes: 12,
    },
    Suite {
        name: "cpython-objects",
        part: "regrtest 3.11: objects, buffers, collection, I/O, compression, without bigmem",
        packages: &["libpython3.11-testsuite", "python3.11"],
        source: None,
        prepare: "",
        run: "mkdir -p temp && TMPDIR=$PWD/temp /usr/bin/python3.11 -m test -v --timeout 400 -i '*bigmem*' \
              test_gc test_weakref test_array test_bytes test_memoryview test_memoryio test_buffer \
              test_fileio test_bufio test_exceptions test_struct test_marshal test_dict test_list test_set \
              test_deque test_heapq test_unicode test_re test_zlib test_bz2 test_lzma test_hashlib test_long \
              test_generators test_tracemalloc test_io",
        reading: Reading::Unittest,
        ram: "1G",
        evict: Some("50ms"),
        minutes: 12,
    },
    Suite {
        name: "cpython-rest",
        part: "regrtest 3.11: all the others, without network and GUI",
        packages: &["libpython3.11-testsuite", "python3.11"],
        source: None,
        prepare: "",
        run: "mkdir -p temp && TMPDIR=$PWD/temp /usr/bin/python3.11 -m test -v -j2 --timeout 1200 -i '*bigmem*' -x \
              test_mmap test_thread test_threading test_threading_local test_threadsignals test_signal \
              test_fork1 test_wait3 test_wait4 test_posix test_os test_resource test_select test_selectors \
              test_poll test_epoll test_faulthandler test_atexit test_queue test_ctypes test_subprocess \
              test_gc test_weakref test_array test_bytes test_memoryview test_memoryio test_buffer \
              test_fileio test_bufio test_exceptions test_struct test_marshal test_dict test_list test_set \
              test_deque test_heapq test_unicode test_re test_zlib test_bz2 test_hashlib test_long \
              test_generators test_tracemalloc test_io",
        reading: Reading::Unittest,
        ram: "1G",
        evict: Some("200ms"),
        minutes: 80,
    },
    Suite {
        name: "tools",
        part: "gdb, strace, sshd and bubblewrap at work (own script): 38 things that they do",
        packages: &[
            "gdb",
            "strace",
            "openssh-server",
            "openssh-client",
            "bubblewrap",
            "gcc",
            "libc6-dev",
        ],
        source: None,
        prepare: "",
        run: "sh $SCRIPTS/tools.sh",
        reading: Reading::Tap,
        ram: "1G",
        evict: Some("20ms"),
        minutes: 10,
    },
    Suite {
        name: "fio",
        part: "verify by each of 10 engines, with buffers of malloc and of mmap (own script)",
        packages: &["fio"],
        source: None,
        prepare: "",
        run: "sh $SCRIPTS/fio.sh",
        reading: Reading::Tap,
        ram: "1G",
        evict: Some("20ms"),
        minutes: 8,
    },
    Suite {
        name: "jemalloc",
        part: "5.3.0, check_unit and check_integration",
        packages: &["dpkg-dev", "autoconf", "gcc", "make"],
        source: Some("jemalloc"),
        prepare: "cd src && autoconf && ./configure && make -j2 && make -j2 tests_unit tests_integration",
        run: "cd src && make -o tests_unit check_unit; make check_integration",
        reading: Reading::Jemalloc,
        ram: "96M",
        evict: Some("20ms"),
        minutes: 8,
    },
    Suite {
        name: "mimalloc",
        part: "2.0.9, its three programs; that of stress with 5 rounds instead of 50",
        packages: &["dpkg-dev", "cmake", "gcc", "make"],
        source: Some("mimalloc"),
        prepare: "mkdir -p src/b && cd src/b && cmake .. && make -j2",
        run: "cd src/b && for words in test-api test-api-fill 'test-stress 32 25 5'; do \
              ./mimalloc-$words >said 2>&1 && echo ok $words || { echo not ok $words; tail -n 9 said; }; done",
        reading: Reading::Tap,
        ram: "300M",
        evict: None,
        minutes: 6,
    },
    Suite {
        name: "tcmalloc",
        part: "gperftools 2.10, make check",
        packages: &["dpkg-dev", "g++", "make", "automake", "libtool"],
        source: Some("google-perftools"),
        prepare: "cd src && ./autogen.sh && ./configure --disable-libunwind && make -j2 && make -j2 check TESTS=",
        run: "cd src && make check -k -j1 | grep -E '^(PASS|FAIL|SKIP|XFAIL|XPASS|ERROR): '",
        reading: Reading::Automake,
        ram: "96M",
        evict: None,
        minutes: 10,
    },
    Suite {
        name: "sanitizers",
        part: "gcc's address, thread, leak and undefined: programs that are right, and with each mistake (own)",
        packages: &["g++"],
        source: None,
        prepare: "",
        run: "sh $SCRIPTS/sanitized.sh",
        reading: Reading::Tap,
        ram: "128M",
        evict: None,
        minutes: 10,
    },
    Suite {
        name: "go",
        part: "runtime's tests of Go 1.19 with -short, linked by cgo against libc",
        packages: &["golang-go", "golang-1.19-src", "gcc", "libc6-dev"],
        source: None,
        prepare: "export CGO_ENABLED=1 GOCACHE=$PWD/cache; \
                  /usr/lib/go-1.19/bin/go test -c -ldflags=-linkmode=external -o runtime.test runtime",
        run: "export GOCACHE=$PLACE/cache PATH=/usr/lib/go-1.19/bin:$PATH; cd /usr/lib/go-1.19/src/runtime && \
              exec $PLACE/runtime.test -test.v -test.short -test.timeout 8m",
        reading: Reading::Go,
        ram: "1G",
        evict: Some("20ms"),
        minutes: 9,
    },
    Suite {
        name: "redis",
        part: "7.0.15 of its own suite: all types, rdb, aof, expiry, scripts, transactions, memory",
        packages: &["dpkg-dev", "tcl", "gcc", "make"],
        source: Some("redis"),
        prepare: "cd src && make -j2 MALLOC=libc",
        run: "cd src && TERM=dumb ./runtest --clients 2 --single unit/type/list --single unit/type/hash \
              --single unit/type/zset --single unit/type/string --single unit/type/set --single unit/type/stream \
              --single unit/other --single unit/dump --single unit/scripting --single unit/expire --single unit/multi \
              --single unit/memefficiency --single unit/maxmemory --single integration/rdb --single integration/aof \
              --single unit/bitops --single unit/hyperloglog --single unit/sort",
        reading: Reading::Redis,
        ram: "1G",
        evict: Some("20ms"),
        minutes: 14,
    },
    Suite {
        name: "stress-ng",
        part: "classes memory, vm and scheduler, a second each with --verify, but those that harm the machine",
        packages: &["stress-ng"],
        source: None,
        prepare: "",
        run: "sh $SCRIPTS/stress.sh",
        reading: Reading::Tap,
        ram: "128M",
        evict: Some("20ms"),
        minutes: 12,
    },
    Suite {
        name: "sqlite3",
        part: "3.40.1, testfixture: files on memory, sorting, joins, transactions, WAL, full text, corruption",
        packages: &["dpkg-dev", "tcl-dev", "gcc", "make"],
        source: Some("sqlite3"),
        prepare: "cd src && ./configure --with-tcl=/usr/lib/tcl8.6 && make -j2 testfixture",
        run: "mkdir -p temp && cd temp && for test in select1 select2 select4 join where index sort sort2 trans \
              wal wal2 pager1 memdb memdb1 cache pcache pcache2 malloc5 vacuum corrupt fts3aa fts3ab fts4aa json101 \
              window1 with1 with2 bigrow blob incrblob savepoint shared thread001 thread002 thread003 in intpkey; do \
              ../src/testfixture ../src/test/$test.test; done",
        reading: Reading::Sqlite,
        ram: "1G",
        evict: Some("20ms"),
        minutes: 8,
    },
    Suite {
        name: "postgresql-15",
        part: "15, the regression tests of make check, as another user than root",
        packages: &[
            "dpkg-dev",
            "bison",
            "flex",
            "zlib1g-dev",
            "gcc",
            "make",
            "util-linux",
        ],
        source: Some("postgresql-15"),
        prepare: "cd src && ./configure --without-icu --without-readline && make -j2 -s && \
                  make -s -C src/test/regress && chown -R nobody ..",
        run: "chmod o+x . && cd src && exec setpriv --reuid=nobody --clear-groups --inh-caps +sys_ptrace \
              --ambient-caps +sys_ptrace make -s -C src/test/regress check MAX_CONNECTIONS=5",
        reading: Reading::PgRegress,
        ram: "96M",
        evict: Some("50ms"),
        minutes: 12,
    },
    Suite {
        name: "numpy",
        part: "1.24, arrays, overlaps, ufuncs, numeric, memory, linalg and fft without those marked slow",
        packages: &["python3-numpy", "python3-pytest", "python3-hypothesis"],
        source: None,
        prepare: "",
        run: "/usr/bin/python3.11 -m pytest -p no:cacheprovider -v -m 'not slow' --pyargs \
              numpy.core.tests.test_multiarray \
              numpy.core.tests.test_mem_overlap numpy.core.tests.test_ufunc numpy.core.tests.test_numeric \
              numpy.core.tests.test_mem_policy numpy.linalg numpy.fft numpy.core.tests.test_memmap",
        reading: Reading::Pytest,
        ram: "80M",
        evict: None,
        minutes: 10,
    },
    Suite {
        name: "make",
        part: "redis' tree with make -j2 and -O2; each object's checksum is compared",
        packages: &["dpkg-dev", "gcc", "make"],
        source: Some("redis"),
        prepare: "rm -f src/tests/*.log",
        run: "sh $SCRIPTS/built.sh MALLOC=libc",
        reading: Reading::Tap,
        ram: "40M",
        evict: None,
        minutes: 10,
    },
    Suite {
        name: "chromium",
        part: "headless, a page with a script, a canvas and a table; document and picture are compared (own)",
        packages: &["chromium"],
        source: None,
        prepare: "",
        run: "sh $SCRIPTS/chromium.sh",
        reading: Reading::Tap,
        ram: "320M",
        evict: None,
        minutes: 10,
    },
    Suite {
        name: "qemu",
        part: "TCG boots Debian's kernel with a guest of 384M, which fills its memory and checks it (own)",
        packages: &["qemu-system-x86", "busybox-static"],
        source: None,
        prepare: "apt-get download linux-image-cloud-amd64 && package=$(apt-cache depends linux-image-cloud-amd64 | \
                  sed -n 's/.*Depends: //p' | head -n 1) && apt-get download $package && dpkg -x $package*.deb kernel",
        run: "sh $SCRIPTS/qemu.sh",
        reading: Reading::Tap,
        ram: "160M",
        evict: None,
        minutes: 10,
    },
    Suite {
        name: "kernel",
        part: "selftests of Linux 6.1: memory, clone, pidfd, namespaces, seccomp, ptrace, futex, proc, x86",
        packages: &["gcc", "libc6-dev", "libcap-dev", "xz-utils"],
        source: None,
        prepare: "apt-get download linux-source-6.1 && dpkg -x linux-source-6.1_*.deb x && \
                  tar -xJf x/usr/src/linux-source-6.1.tar.xz --strip-components=1 --wildcards \
                  '*/tools/testing/selftests/*' '*/tools/include/*' '*/arch/x86/include/uapi/*' && \
                  rm -r x linux-source-6.1_*.deb && sh $SCRIPTS/kernel.sh build",
        run: "sh $SCRIPTS/kernel.sh",
        reading: Reading::Tap,
        ram: "1G",
        evict: Some("20ms"),
        minutes: 40,
    },
];
