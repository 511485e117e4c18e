# What an administrator does with the unit of user 65534, and what that user does meanwhile. Then the machine goes off.
as="setpriv --reuid 65534 --regid 65534 --clear-groups env XDG_RUNTIME_DIR=/run/user/65534"
unit=vswap@65534
echo "begun: $(systemctl is-active $unit)"
$as vswap run --ram 64M -- fill
$as vswap run --ram 64M -- sh -c 'fill waits && sleep 1' </probe.pipe &
# It has filled its memory when it says so, and then it waits for the line.
exec 9>/probe.pipe
until grep -q '^filled' /probe.log; do sleep 0.1; done
systemctl stop --no-block $unit
until journalctl --quiet --unit $unit | grep 'waiting for 1 runs'; do sleep 0.1; done
echo >&9
wait
until [ "$(systemctl is-active $unit)" = inactive ]; do sleep 0.1; done
systemctl show --property=Result,ActiveState $unit
journalctl --quiet --unit $unit
systemctl poweroff
