#!/usr/bin/env bash
# axe.sh: prints where axe-core is, the checks of accessibility that the tests of the web page run. Installs it into the cache from npm at
# first; nothing of it is shipped.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
: "${DROVER_CACHE:=$HOME/.cache/drover}"
tools=$DROVER_CACHE/page-tools-$(sha256sum "$here/package-lock.json" | cut -c1-12)
mkdir -p "$DROVER_CACHE"
(
  flock 9
  [ -e "$tools/made" ] || { mkdir -p "$tools" && cp "$here"/package*.json "$tools" && npm ci --loglevel error --no-fund --no-audit --prefix "$tools" && touch "$tools/made"; } >&2
) 9>"$tools.lock"
echo "$tools/node_modules/axe-core/axe.min.js"
