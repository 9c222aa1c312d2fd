#!/bin/sh
# as_user.sh COMMAND…: runs it as an ordinary user. Exits with 77 if the caller already is one.
if [ "$(id -u)" != 0 ]; then
  echo "SKIPPED: the same test has already run as an ordinary user"
  exit 77
fi
exec setpriv --reuid 61111 --regid 61111 --clear-groups "$@"
