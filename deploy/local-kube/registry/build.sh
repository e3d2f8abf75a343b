#!/usr/bin/env bash
# build.sh
#
# Builds the registry of the CNCF's project Distribution from its pinned Go module, once, for tests of `drover image push`, and prints the
# directory it is in: about a minute on idle cores, seconds with a warm Go cache. Cached as ../build.sh caches, and apart from it.
set -euo pipefail
HERE=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
: "${DROVER_CACHE:=$HOME/.cache/drover}"
PATH=$PATH:/usr/local/go/bin
export GOTOOLCHAIN=local CGO_ENABLED=0 GOWORK=off GOFLAGS=-mod=readonly

say() { echo "registry: $*" >&2; }
command -v go >/dev/null || { say "Go is missing: install the version that go.mod names or a newer one and put it on PATH"; exit 1; }
key=$({ go version; cd "$HERE"; cat build.sh go.mod go.sum; } | sha256sum | cut -c1-12)
out=$DROVER_CACHE/registry-$key
if [ ! -d "$out" ]; then
  mkdir -p "$DROVER_CACHE"
  exec 8>"$DROVER_CACHE/registry.lock"
  flock 8
  if [ ! -d "$out" ]; then # else another process built it while this one waited
    say "building from its Go module: about a minute the first time"
    rm -rf "$DROVER_CACHE/registry.partial"
    mkdir "$DROVER_CACHE/registry.partial"
    (cd "$HERE" && go build -trimpath -ldflags '-s -w' -o "$DROVER_CACHE/registry.partial/" github.com/distribution/distribution/v3/cmd/registry) >&2
    mv "$DROVER_CACHE/registry.partial" "$out"
    find "$DROVER_CACHE" -maxdepth 1 -name 'registry-????????????' -mtime +7 -exec rm -rf {} +
  fi
fi
touch "$out"
echo "$out"
