#!/usr/bin/env bash
# deny.sh: licences, bans and sources of all that comes into the build, as deny.toml says.
# The first time it builds cargo-deny, pinned, into $DROVER_CACHE/tools: some minutes; after that it takes seconds.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
. deploy/env.sh
VERSION=0.20.2
tools=$DROVER_CACHE/tools/cargo-deny-$VERSION

if [ ! -x "$tools/bin/cargo-deny" ]; then
  echo "building cargo-deny $VERSION into $tools (once, some minutes)" >&2
  mkdir -p "$DROVER_CACHE/tools"
  (
    # Two at once would build it twice.
    flock 9
    [ -x "$tools/bin/cargo-deny" ] || CARGO_TARGET_DIR=$DROVER_CACHE/tools/build cargo install --quiet --locked --root "$tools" "cargo-deny@$VERSION"
    rm -rf "$DROVER_CACHE/tools/build"
  ) 9>"$DROVER_CACHE/tools/.lock"
fi
"$tools/bin/cargo-deny" --log-level warn check bans licenses sources
