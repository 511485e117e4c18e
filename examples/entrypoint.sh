#!/bin/sh
# Starts vswap as root, and under it the program as another user. The order matters: vswap needs CAP_SYS_PTRACE, and the
# program must not have it. So it is `vswap run -- gosu app program`, not `gosu app vswap run -- program`.
#
#   VSWAP_RAM   the limit; `auto` is the container's own limit less a margin
#   VSWAP_SWAP  directory for the swap area, VSWAP_SWAP_SIZE its size
#   BECOME      what gives up root: gosu, su-exec, or setpriv with its options
set -e
swap=${VSWAP_SWAP:-/swap}:${VSWAP_SWAP_SIZE:-4G}
exec vswap run --ram "${VSWAP_RAM:-auto}" --swap "$swap" -- ${BECOME:-gosu app} "$@"
