#!/usr/bin/env bash
# build.sh
#
# Builds containerd 2 with its shim and ctr from its pinned Go module, once, for tests of what Debian's 1.6 has not (NRI), and prints the
# directory they are in: about two minutes on idle cores, seconds with a warm Go cache. Cached as ../build.sh caches, and apart from it,
# so that neither's pins make the other build anew. Without cgo: no btrfs snapshotter, which nothing here uses.
set -euo pipefail
HERE=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
: "${DROVER_CACHE:=$HOME/.cache/drover}"
PATH=$PATH:/usr/local/go/bin
export GOTOOLCHAIN=local CGO_ENABLED=0 GOWORK=off GOFLAGS=-mod=readonly
module=github.com/containerd/containerd/v2

say() { echo "containerd: $*" >&2; }
command -v go >/dev/null || { say "Go is missing: install the version that go.mod names or a newer one and put it on PATH"; exit 1; }
key=$({ go version; cd "$HERE"; cat build.sh go.mod go.sum; } | sha256sum | cut -c1-12)
out=$DROVER_CACHE/containerd-$key
if [ ! -d "$out" ]; then
  mkdir -p "$DROVER_CACHE"
  exec 8>"$DROVER_CACHE/containerd.lock"
  flock 8
  if [ ! -d "$out" ]; then # else another process built it while this one waited
    version=$(sed -n "s#^require $module \(v.*\)#\1#p" "$HERE/go.mod")
    say "building $version from its Go module: about two minutes the first time"
    rm -rf "$DROVER_CACHE/containerd.partial"
    mkdir "$DROVER_CACHE/containerd.partial"
    (cd "$HERE" && go build -trimpath -ldflags "-s -w -X $module/version.Version=$version" -o "$DROVER_CACHE/containerd.partial/" \
      $module/cmd/containerd $module/cmd/containerd-shim-runc-v2 $module/cmd/ctr) >&2
    mv "$DROVER_CACHE/containerd.partial" "$out"
    find "$DROVER_CACHE" -maxdepth 1 -name 'containerd-????????????' -mtime +7 -exec rm -rf {} +
  fi
fi
touch "$out"
echo "$out"
