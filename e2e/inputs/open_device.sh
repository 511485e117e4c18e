# Runs a command that may open /dev/userfaultfd whoever it runs as. For root, in mounts of its own.
set -e
dir=$TMPDIR/dev-$$
mkdir "$dir"
mount -t tmpfs none "$dir"
cp -a /dev/userfaultfd "$dir/"
chmod 666 "$dir/userfaultfd"
mount --bind "$dir/userfaultfd" /dev/userfaultfd
exec "$@"
