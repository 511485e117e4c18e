# QEMU without KVM boots Debian's kernel with busybox; the guest fills a file system in its memory, forks, and compares.
# The guest's memory is 384 MiB. What the guest prints as a case is one.
mkdir -p image/bin && cp "$(command -v busybox)" image/bin/busybox
cat >image/init <<'END'
#!/bin/busybox sh
/bin/busybox --install -s /bin
mkdir -p /proc /full && mount -t proc proc /proc
echo "ok booted"
mount -t tmpfs -o size=300m tmpfs /full
i=0
while [ $i -lt 9 ]; do
  yes "line of part $i, which is filled until it is twenty megabytes long" | head -c 20000000 >/full/$i
  i=$((i + 1))
done
i=0
while [ $i -lt 9 ]; do
  sum=$(md5sum </full/$i | cut -c 1-12)
  echo "ok part $i $sum"
  [ "$(cat /full/$i | md5sum | cut -c 1-12)" = "$sum" ] && echo "ok again $i" || echo "not ok again $i"
  i=$((i + 1))
done
sort /full/3 | uniq -c | head -n 1 | grep -q 'part 3' && echo "ok sort" || echo "not ok sort"
for i in 1 2 3 4; do gzip -c /full/$i | gunzip | cmp - /full/$i && echo "ok gzip $i" || echo "not ok gzip $i"; done
echo "ok ends"
poweroff -f
END
chmod 755 image/init
(cd image && find . | busybox cpio -o -H newc | gzip -1) >image.gz
timeout 500 qemu-system-x86_64 -accel tcg -m 384 -smp 2 -nographic -no-reboot -kernel kernel/boot/vmlinuz* \
  -initrd image.gz -append 'console=ttyS0 quiet panic=-1' 2>&1 | tr -d '\r'
