# gdb, strace, sshd and bubblewrap at work on other programs; a line for each thing that they must do.
# No -e: each case stands for itself.
place=$(mktemp -d)
trap 'kill $sshd 2>/dev/null; rm -rf "$place"' EXIT
cd "$place" || exit 1

case_of() {
  name=$1
  shift
  if "$@" >"out.$$" 2>&1; then echo "ok $name"; else echo "not ok $name"; sed 's/^/# /' "out.$$" | tail -n 20; fi
}
# Runs what follows the first word, and wants that word's text in what it says.
says() { wanted=$1; shift; timeout 120 "$@" 2>&1 | tee said | grep -q -e "$wanted" || { tail -n 5 said; false; }; }

cat >debuggee.c <<'END'
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
int sum(int *numbers, int count) { int all = 0; for (int i = 0; i < count; i++) all += numbers[i]; return all; }
static void *work(void *numbers) { return (void *)(long)sum(numbers, 1000); }
int main(int count, char **words) {
    int *numbers = malloc(4 << 20);
    for (int i = 0; i < 1 << 20; i++) numbers[i] = i % 7;
    pthread_t thread;
    void *result;
    pthread_create(&thread, NULL, work, numbers);
    pthread_join(thread, &result);
    if (count > 1) sleep(atoi(words[1]));
    printf("sum %d, %ld\n", sum(numbers, 1 << 20), (long)result);
    return 3;
}
END
gcc -g -O0 -pthread -o debuggee debuggee.c || exit 1
gdb_says() { wanted=$1; shift; says "$wanted" gdb -q -batch -nx -ex 'set confirm off' "$@"; }
case_of gdb-run gdb_says 'exited with code 03' -ex run ./debuggee
case_of gdb-output gdb_says 'sum 3145722' -ex run ./debuggee
case_of gdb-breakpoint gdb_says '\$1 = 1000' -ex 'break sum' -ex run -ex 'print count' ./debuggee
case_of gdb-read-memory gdb_says '\$1 = 5' -ex 'break sum' -ex run -ex 'print numbers[5]' ./debuggee
case_of gdb-read-all gdb_says '\$1 = 6' -ex 'break sum' -ex run -ex 'print numbers[999998 - 999998 % 7 - 1]' ./debuggee
case_of gdb-write-memory gdb_says 'sum 3145822' \
  -ex 'break sum if count > 1000' -ex run -ex 'set var numbers[0] = 100' -ex continue ./debuggee
case_of gdb-watchpoint gdb_says \
  'New value = 3' -ex 'break sum' -ex run -ex 'watch all if all == 3' -ex continue ./debuggee
case_of gdb-finish gdb_says 'Value returned is' -ex 'break sum' -ex run -ex finish ./debuggee
case_of gdb-step gdb_says 'all += numbers' -ex 'break sum' -ex run -ex next -ex next ./debuggee
case_of gdb-backtrace gdb_says 'in work' -ex 'break sum' -ex run -ex bt ./debuggee
case_of gdb-threads gdb_says 'Thread.*LWP' -ex 'break sum' -ex run -ex 'info threads' ./debuggee
case_of gdb-call gdb_says '\$1 = 3' -ex 'break sum if count > 1000' -ex run -ex 'print sum(numbers, 3)' ./debuggee
attach() {
  ./debuggee 20 & debuggee=$!
  sleep 3
  gdb_says 'clock_nanosleep\|in main' -p $debuggee -ex bt
  status=$?
  kill $debuggee
  return $status
}
case_of gdb-attach attach
case_of gdb-python gdb_says 'seven 7' -ex 'python print("seven", 3 + 4)'

case_of strace-exit says 'exited with 3' strace -f ./debuggee
case_of strace-count says 'mmap' strace -f -c ./debuggee
case_of strace-output says 'sum 3145722' strace -f -o trace ./debuggee
case_of strace-children says 'exited with 7' strace -f sh -c 'sh -c "exit 7"; exit 4'
case_of strace-strings says 'write(1, "words of some length' \
  strace -s 100 -e trace=write sh -c 'echo words of some length'
case_of strace-inject says 'ENOSPC.*INJECTED' strace -e inject=write:error=ENOSPC sh -c 'echo lost'
case_of strace-python says 'exited with 0' \
  strace -f -o /dev/stderr /usr/bin/python3 -c 'x = [bytes(4096) for _ in range(4096)]'
case_of strace-seccomp says 'exited with 3' strace -f --seccomp-bpf -e trace=mmap ./debuggee
strace_attach() {
  ./debuggee 6 & debuggee=$!
  sleep 2
  says 'exited with 3' strace -f -p $debuggee
}
case_of strace-attach strace_attach

port=$((20000 + $$ % 20000))
ssh-keygen -q -t ed25519 -N '' -f host
ssh-keygen -q -t ed25519 -N '' -f user
cp user.pub authorized
chmod 700 . && chmod 600 authorized
mkdir -p /run/sshd
/usr/sbin/sshd -D -f /dev/null -p $port -h "$place/host" -o ListenAddress=127.0.0.1 -o StrictModes=no -o UsePAM=no \
  -o PermitRootLogin=yes -o AuthorizedKeysFile="$place/authorized" -o PidFile=none -o Subsystem='sftp internal-sftp' \
  2>sshd.log &
sshd=$!
sleep 3
options="-F none -i $place/user -o StrictHostKeyChecking=no -o UserKnownHostsFile=/dev/null -o LogLevel=ERROR"
over_ssh() { ssh -p $port $options 127.0.0.1 "$@"; }
case_of sshd-login says hello ssh -p $port $options 127.0.0.1 echo hello
status_of_ssh() { over_ssh exit 9; [ $? = 9 ]; }
case_of sshd-status status_of_ssh
head -c 33554432 /dev/urandom >big
through() { over_ssh cat <big >back && cmp big back; }
case_of sshd-32-mebibytes through
case_of sshd-terminal says tty ssh -tt -p $port $options 127.0.0.1 'test -t 0 && echo a tty'
case_of sshd-scp scp -q -P $port $options big 127.0.0.1:"$place/copied"
case_of sshd-scp-bytes cmp big copied
many() { for i in 1 2 3 4 5 6 7 8; do over_ssh "echo number $i" || return 1; done; }
case_of sshd-eight-logins many

dir_case() { bwrap --dev-bind / / --chdir "$place" "$@"; }
status_of_bwrap() { dir_case --unshare-pid sh -c 'exit 7'; [ $? = 7 ]; }
case_of bwrap-status status_of_bwrap
case_of bwrap-pid says '^2$\|^1$' bwrap --dev-bind / / --unshare-pid --proc /proc sh -c 'echo $$'
case_of bwrap-net says 'lo' bwrap --dev-bind / / --unshare-net sh -c 'cat /proc/net/dev'
case_of bwrap-ipc-uts says other bwrap --dev-bind / / --unshare-uts --unshare-ipc --hostname other uname -n
case_of bwrap-tmpfs says empty bwrap --dev-bind / / --tmpfs "$place" sh -c "test -z \"\$(ls $place)\" && echo empty"
case_of bwrap-read-only says 'Read-only' bwrap --ro-bind / / --dev /dev sh -c "LC_ALL=C touch $place/no"
case_of bwrap-python says '^36000000$' bwrap --dev-bind / / --unshare-pid --proc /proc \
  /usr/bin/python3 -c 'x = [bytes([n % 7] * 4000) for n in range(9000)]; print(sum(len(y) for y in x))'
case_of bwrap-user says '^uid=1000' bwrap --dev-bind / / --unshare-user --uid 1000 id
