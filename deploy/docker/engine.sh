#!/usr/bin/env bash
# engine.sh CMD...: runs CMD where docker-compose finds a container engine, on a machine without Docker: podman behind Docker's interface
# (DOCKER_HOST). It needs root and Debian's packages (deploy/setup.sh containers).
#
# Containers, networks and volumes are in a directory of this run and are removed at its end, for whatever reason it ends. Images of
# stand-in.sh are kept in $DROVER_CACHE/images. ENGINE_DIR names a directory to keep all of it in instead, for another run.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
: "${DROVER_CACHE:=$HOME/.cache/drover}"
die() { echo "engine: $*" >&2; exit 1; }
[ $# -gt 0 ] || { sed -n '2,6s/^# \{0,1\}//p' "$0" >&2; exit 2; }
"$here/../setup.sh" containers
[ "$(id -u)" = 0 ] || die "podman's networks need root"

images=$DROVER_CACHE/images
mkdir -p "$images" "$DROVER_CACHE/run"
keep=${ENGINE_DIR:-}
dir=${ENGINE_DIR:-$(mktemp -d "$DROVER_CACHE/run/engine-XXXXXX")}
mkdir -p "$dir"/{tmp,networks}

# runc and limits below the machine's own: crun needs cgroup v2, and not every machine lets limits be raised. No systemd: cgroupfs,
# and a file for events. What podman would share between all its directories (locks, networks) is in this one.
cat >"$dir/containers.conf" <<C
[containers]
default_ulimits = ["nofile=1024:1024", "nproc=4096:4096"]
[network]
network_config_dir = "$dir/networks"
[engine]
runtime = "runc"
cgroup_manager = "cgroupfs"
events_logger = "file"
lock_type = "file"
tmp_dir = "$dir/tmp"
C
cat >"$dir/storage.conf" <<C
[storage]
driver = "overlay"
graphroot = "$dir/root"
runroot = "$dir/run"
[storage.options]
additionalimagestores = ["$images"]
C
# Stand-ins are known by their tags.
export DROVER_POSTGRES_IMAGE=postgres:15-bookworm CONTAINERS_CONF=$dir/containers.conf CONTAINERS_STORAGE_CONF=$dir/storage.conf DOCKER_HOST=unix://$dir/docker.sock DOCKER_BUILDKIT=0

command=
clean_up() {
  trap - EXIT INT TERM
  [ -z "$command" ] || kill "$command" 2>/dev/null || true
  [ -z "$health$service" ] || kill $health $service 2>/dev/null || true
  wait
  podman rm --all --force --time 1 >/dev/null 2>&1 || true
  podman network prune --force >/dev/null 2>&1 || true
  # What watches an ended `exec` waits five minutes, and would then make the directory again.
  for pid in $(pgrep -f "^/usr/bin/conmon .*$dir/root"); do kill -KILL "$pid" 2>/dev/null || true; done
  [ -n "$keep" ] || { umount -R "$dir/root/overlay" 2>/dev/null || true; rm -rf "$dir"; }
}

health= service=
trap clean_up EXIT
trap 'exit 130' INT TERM
"$here/stand-in.sh" "$images"
podman system service --time 0 "$DOCKER_HOST" >"$dir/service.log" 2>&1 &
service=$!
for _ in $(seq 100); do [ ! -S "$dir/docker.sock" ] || break; sleep 0.1; done
[ -S "$dir/docker.sock" ] || { cat "$dir/service.log" >&2; die "podman does not start"; }

# podman leaves health checks to timers of systemd. Without systemd this loop runs them.
while sleep 3; do
  for container in $(podman ps --quiet --filter status=running 2>/dev/null); do podman healthcheck run "$container" || true; done
done >/dev/null 2>&1 &
health=$!

"$@" &
command=$!
code=0
wait "$command" || code=$?
command=
exit "$code"
