#!/usr/bin/env bash
# check.sh [lint|breaking|promise]: checks openapi/drover.json. Without a word: lint and breaking.
#   lint      Spectral: no error and no warning. Examples must have the form that their schemas ask for.
#   breaking  oasdiff: nothing that breaks clients since the promised document (promised.json.gz), but what recorded.txt names: a line of
#             oasdiff's output each, with a reason above it as a comment (#)
#   promise   makes the present document the promised one, for a release
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
cd "$here/../.."
: "${DROVER_CACHE:=$HOME/.cache/drover}"
PATH=$PATH:/usr/local/go/bin
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
tools=$DROVER_CACHE/openapi-tools-$(cat "$here/go.mod" "$here/go.sum" "$here/package-lock.json" | sha256sum | cut -c1-12)

lint() {
  (
    flock 9
    [ -e "$tools/lint/made" ] || { mkdir -p "$tools/lint" && cp "$here"/package*.json "$tools/lint" && npm ci --loglevel error --no-fund --no-audit --prefix "$tools/lint" && touch "$tools/lint/made"; } >&2
  ) 9>"$tools.lock"
  "$tools/lint/node_modules/.bin/spectral" lint openapi/drover.json --ruleset "$here/spectral.yaml" --fail-severity hint --quiet --format text ||
    { echo "openapi/drover.json has faults; its texts and schemas come from the handlers, its examples from tests/contract" >&2; exit 1; }
}

breaking() {
  [ -x "$tools/oasdiff" ] || (cd "$here" && go build -trimpath -o "$tools/oasdiff" github.com/oasdiff/oasdiff)
  gunzip -c "$here/promised.json.gz" >"$work/promised.json"
  grep -v '^#' "$here/recorded.txt" >"$work/recorded" || true
  "$tools/oasdiff" breaking --fail-on WARN --format singleline --err-ignore "$work/recorded" --warn-ignore "$work/recorded" \
    "$work/promised.json" openapi/drover-3.0.json ||
    { echo "openapi/drover.json breaks what clients rely on: keep it, or record the change in deploy/openapi/recorded.txt with its reason" >&2; exit 1; }
}

case ${1:-} in
  "") mkdir -p "$tools"; lint; breaking ;;
  lint | breaking) mkdir -p "$tools"; "$1" ;;
  promise) gzip -9n <openapi/drover-3.0.json >"$here/promised.json.gz" ;;
  *) sed -n '2,7s/^# \{0,1\}//p' "$0" >&2; exit 2 ;;
esac
