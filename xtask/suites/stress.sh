# stress-ng: every stressor of the classes of memory, virtual memory and scheduling that harms no other program, for
# a second, with --verify. A stressor that this machine or this user may not run is one that was skipped.
# Not here: those that swap on, lock up, fill up or measure the machine, set its clock, or want all of its memory.
harmful=' swap softlockup watchdog oom-pipe full tmpfs dev-shm numa physpage pageswap clock daemon fanotify cyclic '
harmful="$harmful mlockmany shm shm-sysv tlb-shootdown loadavg spawn memrate stream forkheavy session resources "
classes=$(for class in memory vm scheduler; do stress-ng --class $class? | sed 's/.*: //'; done | tr ' ' '\n' | sort -u)
for name in $classes; do
  case $harmful in *" $name "*) continue ;; esac
  timeout 90 stress-ng --$name 1 --verify --timeout 1 --oomable --vm-bytes 96M --mmap-bytes 64M --bigheap-growth 64K \
    --temp-path "${TMPDIR:-/var/tmp}" >said 2>&1
  status=$?
  case $status in
    0) if grep -q 'skipping' said; then echo "ok $name # SKIP"; else echo "ok $name"; fi ;;
    3 | 4) echo "ok $name # SKIP" ;;
    *) echo "not ok $name"; echo "# status $status"; sed 's/^/# /' said | tail -n 12 ;;
  esac
done
