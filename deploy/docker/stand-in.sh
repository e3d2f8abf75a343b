#!/usr/bin/env bash
# stand-in.sh STORE: makes images named debian:bookworm-slim and postgres:15-bookworm from Debian's packages, in podman's image store STORE.
#
# They are stand-ins for the images of these names on Docker Hub, for machines that cannot pull any. They have the same programs from the
# same Debian packages, but they are not those images: Postgres has a start script of ours (stand-in/docker-entrypoint.sh) which does the
# part of the original's work that docker-compose.yml relies on. Made once, in about a minute; made again when these files change.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
store=$1
mkdir -p "$store"
exec 9>"$store.lock"
flock 9
made=$(cat "$here/stand-in.sh" "$here"/stand-in/* | sha256sum | cut -c1-16)
[ "$(cat "$store/made" 2>/dev/null)" != "$made" ] || exit 0

echo "stand-in: making debian:bookworm-slim and postgres:15-bookworm from Debian's packages" >&2
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
export CONTAINERS_STORAGE_CONF=$work/storage.conf
cat >"$CONTAINERS_STORAGE_CONF" <<C
[storage]
driver = "overlay"
graphroot = "$store"
runroot = "$work/run"
C
quiet() { "$@" >"$work/log" 2>&1 9>&- || { tail -n 20 "$work/log" >&2; echo "stand-in: $1 failed" >&2; exit 1; }; }
hub=docker.io/library
quiet mmdebstrap --variant=minbase --include=ca-certificates bookworm "$work/debian.tar"
quiet podman import --change 'CMD ["bash"]' "$work/debian.tar" $hub/debian:bookworm-slim
quiet podman build --isolation chroot --tag $hub/postgres:15-bookworm "$here/stand-in"
quiet podman image prune --force
umount "$store/overlay" 2>/dev/null || true # podman mounts it over itself
echo "$made" >"$store/made"
