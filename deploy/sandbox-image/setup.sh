#!/bin/sh
# What the starter image has beside its packages: run as root in its root file system, by Dockerfile and build.sh.
set -eu

# Each sandbox has a uid of its own, and a gateway of an ordinary user that user's: all of them are `agent`. The lowest
# comes first, and is what `agent` means. `user` and its home are the names that SDKs of E2B know. What is added to the
# image makes its own users with `useradd --system`.
seq 1000 69999 | sed 's|.*|agent:x:&:&:agent:/workspace:/bin/bash|' >> /etc/passwd
seq 1000 69999 | sed 's|.*|agent:x:&:|' >> /etc/group
echo 'user:x:1000:1000:agent:/home/user:/bin/bash' >> /etc/passwd
mkdir -p /workspace
ln -s /workspace /home/user

# `pip install` puts things below HOME, the workspace: there is no system's Python that it could break, since that is
# read-only.
printf '[global]\nbreak-system-packages = true\n' > /etc/pip.conf

# In a pod the directory itself may be root's, though all in it is the agent's: git would call that dubious.
printf '[safe]\n\tdirectory = /workspace\n' > /etc/gitconfig
