#!/usr/bin/env bash
# deny.sh [CHECK...]: checks all dependencies by the rules of deny.toml; without CHECK their licences, bans and sources.
# The first run builds a pinned cargo-deny into $DROVER_CACHE/tools, which takes some minutes; later runs take seconds.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
. deploy/env.sh
VERSION=0.20.2
tools=$DROVER_CACHE/tools/cargo-deny-$VERSION

if [ ! -x "$tools/bin/cargo-deny" ]; then
  echo "building cargo-deny $VERSION into $tools (once, some minutes)" >&2
  mkdir -p "$DROVER_CACHE/tools"
  (
    # The lock keeps two runs from building it twice.
    flock 9
    [ -x "$tools/bin/cargo-deny" ] || CARGO_TARGET_DIR=$DROVER_CACHE/tools/build cargo install --quiet --locked --root "$tools" "cargo-deny@$VERSION"
    rm -rf "$DROVER_CACHE/tools/build"
  ) 9>"$DROVER_CACHE/tools/.lock"
fi
[ $# -gt 0 ] || set -- bans licenses sources
"$tools/bin/cargo-deny" --log-level warn check "$@"
