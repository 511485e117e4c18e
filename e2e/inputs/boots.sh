# Boots systemd in a container whose root is this machine's, with all changes kept below $1/upper. For root, in mounts
# of its own. Everybody may open /dev/userfaultfd there. probe.service is all that is started.
set -e
mkdir "$1/work" "$1/root"
mount -t overlay overlay -o "lowerdir=/,upperdir=$1/upper,workdir=$1/work" "$1/root"
cp -a /dev/userfaultfd "$1/userfaultfd"
chmod 666 "$1/userfaultfd"
exec systemd-nspawn --quiet --register=no --keep-unit --private-network --capability=all \
    --machine="vswap-boots-$$" --directory="$1/root" --bind="$1/userfaultfd:/dev/userfaultfd" \
    --boot systemd.unit=probe.service
