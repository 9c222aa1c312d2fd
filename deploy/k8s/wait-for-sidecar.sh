#!/bin/sh
# Starts a program once the gateway beside it can run commands: wait-for-sidecar.sh PROGRAM [ARGUMENT…]
#
#   WAIT_FOR_SIDECAR          HOST:PORT of the gateway; not set: it does not wait
#   WAIT_FOR_SIDECAR_TIMEOUT  seconds, 60; then it ends with 69 and has started nothing
set -eu
[ $# -gt 0 ] || { echo "wait-for-sidecar: no program to start" >&2; exit 64; }

ask() {
  if command -v curl > /dev/null; then
    curl --silent --show-error --fail --noproxy '*' --max-time 2 --output /dev/null "$1" 2>&1
  elif command -v wget > /dev/null; then
    http_proxy='' wget -q -T 2 -O /dev/null "$1" 2>&1
  else
    echo "there is neither curl nor wget"
    return 1
  fi
}

if [ -n "${WAIT_FOR_SIDECAR:-}" ]; then
  limit=${WAIT_FOR_SIDECAR_TIMEOUT:-60}
  until=$(($(date +%s) + limit))
  while ! said=$(ask "http://$WAIT_FOR_SIDECAR/readyz"); do
    if [ "$(date +%s)" -ge "$until" ]; then
      echo "wait-for-sidecar: $WAIT_FOR_SIDECAR was not ready within $limit s: $said" >&2
      exit 69
    fi
    sleep 1
  done
fi
exec "$@"
