#!/bin/sh
# Sets up the starter image, apart from its packages: Dockerfile and build.sh run it as root in its root file
# system.
set -eu

# Each sandbox has its own uid, or under a gateway of an ordinary user that user's: all of them are named
# `agent`. The lowest comes first, and `agent` resolves to it. `user` and its home are the names that SDKs of
# E2B know. Images built on this one create users with `useradd --system`.
seq 1000 69999 | sed 's|.*|agent:x:&:&:agent:/workspace:/bin/bash|' >> /etc/passwd
seq 1000 69999 | sed 's|.*|agent:x:&:|' >> /etc/group
echo 'user:x:1000:1000:agent:/home/user:/bin/bash' >> /etc/passwd
mkdir -p /workspace
ln -s /workspace /home/user

# `pip install` installs below HOME, the workspace: it cannot break the system's Python, which is read-only.
printf '[global]\nbreak-system-packages = true\n' > /etc/pip.conf

# In a pod the directory itself may belong to root, though everything in it belongs to the agent: git would
# refuse it as dubious.
printf '[safe]\n\tdirectory = /workspace\n' > /etc/gitconfig
