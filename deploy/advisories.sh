#!/usr/bin/env bash
# advisories.sh [rust|go|javascript|python]...: looks up known vulnerabilities of what Drover ships and of its clients: the crates (RustSec), helm
# and the client in Go (the Go vulnerability database), the clients in JavaScript (npm audit) and Python (pip-audit).
#
# A known vulnerability fails. A database that cannot be asked is named in one line and is no failure, so that no build depends on it.
# DROVER_ADVISORY_DB is a clone of RustSec's database, used instead of https://github.com/RustSec/advisory-db. What was looked at and does not
# concern Drover is in deny.toml, with the reason.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
. deploy/env.sh
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
known=
asked() { echo "advisories: $1: $2"; }
unasked() { echo "advisories: $1: not looked up, its database cannot be asked from here ($2)"; }
# found WHAT FILE: what is known
found() { echo "advisories: $1: known vulnerabilities" >&2; cat "$2" >&2; known=yes; }

rust() {
  local source=https://github.com/RustSec/advisory-db
  local database=${DROVER_ADVISORY_DB:-$source}
  GIT_TERMINAL_PROMPT=0 timeout 30 git ls-remote "$database" HEAD >"$work/rust" 2>&1 || { unasked "crates" "$(tail -n 1 "$work/rust")"; return; }
  export GIT_CONFIG_COUNT=1 GIT_CONFIG_KEY_0=url.$database.insteadOf GIT_CONFIG_VALUE_0=$source
  if deploy/deny.sh advisories >"$work/rust" 2>&1; then asked crates "nothing known"; else found crates "$work/rust"; fi
  unset GIT_CONFIG_COUNT GIT_CONFIG_KEY_0 GIT_CONFIG_VALUE_0
}

# The module of the database has its reports. What concerns the standard library of this machine's Go is told and is no failure: its version is
# not of this repository.
go() {
  local check=golang.org/x/vuln/cmd/govulncheck@v1.9.0 helm what arguments
  command go mod download -json golang.org/x/vulndb@latest >"$work/module" 2>&1 || { unasked Go "$(tail -n 1 "$work/module")"; return; }
  helm=$(deploy/local-kube/build.sh helm)/helm
  for what in "the client" helm; do
    arguments=(-C "$PWD/clients/go" -scan module)
    [ "$what" != helm ] || arguments=(-mode binary "$helm")
    GOFLAGS=-mod=mod command go run "$check" -db "file://$(sed -n 's/.*"Dir": "\(.*\)".*/\1/p' "$work/module")/data/osv" -format json "${arguments[@]}" \
      >"$work/go" 2>"$work/error" || { unasked "Go, $what" "$(tail -n 1 "$work/error")"; continue; }
    python3 - "$work/go" >"$work/found" <<'P'
import json, sys
text, at, known, own, level = open(sys.argv[1]).read().strip(), 0, set(), {}, ""
while at < len(text):
    message, at = json.JSONDecoder().raw_decode(text, at)
    at += len(text[at:]) - len(text[at:].lstrip())
    finding = message.get("finding")
    place = finding["trace"][0] if finding else {}
    if place.get("module") == "stdlib":
        own[finding["osv"]] = finding.get("fixed_version", "not yet")
    elif finding and ("function" in place or level == "module"):
        known.add(f'{finding["osv"]} in {place["module"]} {place.get("version", "")}, fixed in {finding.get("fixed_version", "no version")}')
    level = message.get("config", {}).get("scan_level", level)
print("\n".join(sorted(known)))
if own:
    print(f"advisories: Go, {len(own)} known in the standard library of this machine's Go: {', '.join(sorted(own))}", file=sys.stderr)
P
    if grep -q . "$work/found"; then found "Go, $what" "$work/found"; else asked "Go, $what" "nothing known"; fi
  done
}

javascript() {
  cp clients/typescript/package*.json "$work"
  if (cd "$work" && npm audit --package-lock-only --json >audit 2>error); then asked JavaScript "nothing known"
  elif python3 -c 'import json, sys; sys.exit("vulnerabilities" not in json.load(open(sys.argv[1])))' "$work/audit" 2>"$work/error"; then found JavaScript "$work/audit"
  else unasked JavaScript "npm audit is refused or not answered"; fi
}

python() {
  local tools=$DROVER_CACHE/tools/pip-audit-2.10.0
  if [ ! -x "$tools/bin/pip-audit" ]; then
    python3 -m venv "$tools" && "$tools/bin/pip" install --quiet --disable-pip-version-check pip-audit==2.10.0 || { unasked Python "pip-audit cannot be installed"; return; }
  fi
  # audit FILE OPTION...: "known", "nothing", or "unasked" if the index does not tell about a version, which says nothing about it
  audit() {
    "$tools/bin/pip-audit" --requirement "$1" --format json --progress-spinner off "${@:2}" >"$work/audit" 2>"$work/error" || true
    python3 - "$work/audit" <<'P' 2>"$work/error" || echo unasked
import json, sys
packages = json.load(open(sys.argv[1]))["dependencies"]
answered = [package for package in packages if "skip_reason" not in package]
print("known" if any(package["vulns"] for package in answered) else "nothing" if len(answered) == len(packages) else "unasked")
P
  }
  # Resolving all packages takes minutes; a version of which something is known tells whether it is of use.
  echo idna==3.3 >"$work/probe"
  [ "$(audit "$work/probe" --no-deps --disable-pip)" = known ] || { unasked Python "the index does not tell about single versions"; return; }
  case $(audit clients/python/requirements.txt) in
    known) found Python "$work/audit" ;;
    nothing) asked Python "nothing known" ;;
    *) unasked Python "$(tail -n 1 "$work/error")" ;;
  esac
}

[ $# -gt 0 ] || set -- rust go javascript python
for what in "$@"; do
  case $what in rust | go | javascript | python) "$what" ;; *) sed -n '2,3s/^# \{0,1\}//p' "$0" >&2; exit 2 ;; esac
done
[ -z "$known" ]
