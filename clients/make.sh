#!/usr/bin/env bash
# make.sh [--run] LANGUAGE...: generates the clients of these languages (python, typescript, go, rust) from the documents in openapi/ into
# $DROVER_CACHE/clients/LANGUAGE, and builds their packages there. --run then runs the example of each against DROVER_URL.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
. deploy/env.sh
top=$PWD run=
case ${1:-} in --run) run=yes; shift ;; esac
[ $# -gt 0 ] || set -- python typescript go rust

python() {
  [ -x venv/bin/pip ] || python3 -m venv venv
  venv/bin/pip install --quiet --disable-pip-version-check --requirement requirements.txt
  rm -rf package
  PATH=$PWD/venv/bin:$PATH venv/bin/openapi-python-client generate --path "$top/openapi/drover.json" --config config.yaml --output-path package >generate.log 2>&1 ||
    { cat generate.log >&2; return 1; }
  cp README.md package/
  venv/bin/pip wheel --quiet --disable-pip-version-check --no-deps --wheel-dir dist ./package
  venv/bin/pip install --quiet --disable-pip-version-check --force-reinstall --no-deps dist/*.whl
  [ -z "$run" ] || venv/bin/python story.py
}

typescript() {
  npm ci --loglevel error --no-fund --no-audit
  npx --no-install openapi-typescript "$top/openapi/drover.json" --output src/api.ts >generate.log 2>&1 || { cat generate.log >&2; return 1; }
  npx --no-install tsc --project .
  npm pack --silent --pack-destination . >/dev/null
  [ -z "$run" ] || node dist/story.js
}

go_client() {
  (cd tools && go tool oapi-codegen -config config.yaml -o ../drover.go "$top/openapi/drover-3.0.json")
  go vet ./...
  [ -z "$run" ] || go test -count=1 -v ./...
}

# The package is that of the workspace, made independent of it: with the document beside it, and the versions of the root's Cargo.toml.
rust() {
  cp "$top/openapi/drover-3.0.json" openapi.json
  python3 - "$top/Cargo.toml" <<'P'
import re, sys

root = open(sys.argv[1]).read()
package = dict(re.findall(r'^(version|edition|rust-version|license) = (".*")$', root, re.M))
dependency = lambda name: re.search(rf"^{name} = (.*?)(?: *#.*)?$", root, re.M).group(1)
text = re.sub(r"^([a-z0-9_-]+)\.workspace = true$", lambda m: f"{m[1]} = {package.get(m[1]) or dependency(m[1])}", open("Cargo.toml").read().replace("publish.workspace = true\n", ""), flags=re.M)
open("Cargo.toml", "w").write(text + "\n[workspace]\n")
P
  cp "$top/Cargo.lock" .
  CARGO_TARGET_DIR=$PWD/target cargo package --quiet --allow-dirty --no-verify
  [ -z "$run" ] || CARGO_TARGET_DIR=$PWD/target cargo run --quiet --example story
}

for language in "$@"; do
  case $language in python | typescript | go | rust) ;; *) echo "make.sh: python, typescript, go or rust, not $language" >&2; exit 2 ;; esac
  to=$DROVER_CACHE/clients/$language
  mkdir -p "$to"
  cp -r "clients/$language/." "$to"
  # One at a time: tests and people share the directory.
  (
    flock 9
    cd "$to"
    case $language in go) go_client ;; *) "$language" ;; esac
  ) 9>"$to.lock"
  echo "clients: $language is in $to" >&2
done
