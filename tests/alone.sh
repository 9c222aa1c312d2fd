#!/bin/sh
# alone.sh COMMAND…: runs it in its own pid namespace if root starts it and may create one, otherwise unchanged. Tests
# run concurrently, the sandboxes of two gateways may have the same uid, and a purge kills every process of that uid.
if [ "$(id -u)" != 0 ] || ! unshare --pid --fork --mount-proc true 2> /dev/null; then exec "$@"; fi
exec unshare --pid --fork --mount-proc --kill-child sh -c '"$@"; exit $?' alone "$@"
