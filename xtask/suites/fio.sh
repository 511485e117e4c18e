# fio writes and verifies a file with each of its engines that need neither a device nor a network.
place=$(mktemp -d -p /var/tmp)
trap 'rm -rf "$place"' EXIT
one() {
  engine=$1 memory=$2 pattern=$3
  name="$engine-$memory-$pattern"
  shift 3
  if timeout 120 fio --name=job --directory="$place" --ioengine="$engine" --iomem="$memory" --rw="$pattern" --bs=64k \
    --size=32m --verify=sha256 --verify_fatal=1 --do_verify=1 --iodepth=32 --numjobs=2 "$@" >"$place/said" 2>&1; then
    echo "ok $name"
  else
    echo "not ok $name"
    sed 's/^/# /' "$place/said" | head -n 20
  fi
  rm -f "$place"/job*
}
for engine in sync psync vsync pvsync pvsync2 posixaio libaio io_uring mmap splice; do
  for pattern in write randwrite; do
    one $engine malloc $pattern --thread
    one $engine mmap $pattern
  done
done
one libaio malloc randrw --direct=1
one libaio mmap randrw --direct=1 --thread
one io_uring malloc randrw --direct=1
one io_uring mmap randrw --direct=1 --fixedbufs --thread
one io_uring malloc randrw --direct=1 --sqthread_poll
one pvsync2 malloc randrw --direct=1
for check in md5 crc64 crc32c sha512 xxhash pattern; do
  one psync malloc randwrite --verify=$check --verify_pattern=0x5aa5 --thread
done
