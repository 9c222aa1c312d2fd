#!/bin/sh
# as_user.sh COMMAND…: runs it as an ordinary user. Exits with 77 where the caller is one already.
if [ "$(id -u)" != 0 ]; then
  echo "SKIPPED: the same has run as an ordinary user already"
  exit 77
fi
exec setpriv --reuid 61111 --regid 61111 --clear-groups "$@"
