#!/usr/bin/env bash
# Creates the root file system of the gateway's image from a build directory: the program, its backends, the shared libraries
# that these need from this machine, certificate authorities, and nothing else; no shell.
#
#   rootfs.sh BUILD_DIR OUT     OUT: a directory, empty or missing
set -euo pipefail
build=${1:?BUILD_DIR} out=${2:?OUT}
user=65532

mkdir -p "$out"
[ -z "$(ls -A "$out")" ] || { echo "rootfs.sh: $out is not empty" >&2; exit 1; }
# Only root may be able to write to the plugins' directory and to every directory above it.
umask 022
DESTDIR=$(realpath "$out") cmake --install "$build" --prefix /usr/local --strip > /dev/null
rm -rf "$out"/usr/local/{include,share,lib/systemd,lib/sysusers.d}
# The backend docker reads it, as a user who is not root.
chmod 0555 "$out/usr/local/lib/isogate/isogate-runner"

copy_libraries() {
  local library
  for library in $(ldd "$@" | grep -oE '(=> )?/[^ ]+ \(' | tr -d '=>( ' | sort -u); do
    mkdir -p "$out$(dirname "$library")"
    cp --dereference "$library" "$out$library"
  done
}
copy_libraries "$out/usr/local/bin/isogate" "$out"/usr/local/lib/isogate/plugins/*.so

mkdir -p "$out"/{dev,proc,sys,etc/ssl/certs,etc/isogate} "$out/var/lib/isogate"
mkdir -m 1777 "$out/tmp"
cp --dereference /etc/ssl/certs/ca-certificates.crt "$out/etc/ssl/certs/"
cat > "$out/etc/passwd" << END
root:x:0:0:root:/:/none
isogate:x:$user:$user:isogate:/var/lib/isogate:/none
isogate-host:x:$((user + 1)):$((user + 1)):isogate, backend hosts:/:/none
END
cat > "$out/etc/group" << END
root:x:0:
isogate:x:$user:
isogate-host:x:$((user + 1)):
END
if [ "$(id -u)" = 0 ]; then chown "$user:$user" "$out/var/lib/isogate"; fi
chmod 0700 "$out/var/lib/isogate"
