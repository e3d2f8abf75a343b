#!/usr/bin/env bash
# test.sh [--long]: everything `make test` does, from an empty machine to a closing line "N passed, N failed".
# --long also runs the tests marked #[ignore], more cases of the property tests, cargo-deny and known vulnerabilities (as `make lint` does). Its
# lanes run one after the other, fuzz beside them.
# LANES names the lanes that run (deploy/lane.sh); all of them if it is not set. A long run that failed in one lane need not be repeated whole.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
LANES=${LANES:-fuzz around whole hub}
for name in $LANES; do
  case $name in fuzz | around | whole | hub) ;; *) echo "test: LANES: there is no lane $name; there are fuzz, around, whole and hub" >&2; exit 2 ;; esac
done
wanted() { [[ " $LANES " = *" $1 "* ]]; }
step() { echo "== $* ($(date +%T))"; }

step "packages that the machine lacks"
deploy/setup.sh test $(case ${1:-} in --long) echo long ;; esac)
. deploy/env.sh

# A linker that finds no room says so in the middle of other messages, minutes later.
free=$(df --output=avail -BG "$DROVER_CACHE" | tr -dc '0-9\n' | tail -1)
if [ "$free" -lt 6 ]; then
  echo "test: $free GB are free for $DROVER_CACHE; a first run needs 30 and a later one 6. Remove what you no longer need, for example $DROVER_CACHE/target-*" >&2
  exit 1
fi

step "docker-compose.yml and deploy scripts"
deploy/docker/check.sh

step "format"
cargo fmt --all --check

# Kubernetes and helm are built beside the programs, and kept for later runs. Then comes the one control plane for all tests that compare
# with a real API server. Its owner is this script, so it is taken down however the script ends. The public document is checked meanwhile.
DROVER_KUBE_BIN=$(deploy/local-kube/build.sh kubernetes --print)
DROVER_HELM=$(deploy/local-kube/build.sh helm --print)/helm
DROVER_BIN=$CARGO_TARGET_DIR/debug/drover
export DROVER_KUBE_BIN DROVER_HELM DROVER_BIN
contract=$(mktemp -d)
background=() # process groups that end with this script
clean_up() {
  for group in "${background[@]}"; do kill -- "-$group" 2>/dev/null || true; done
  deploy/local-kube/kube.sh down --dir "$contract" >"$contract.log" 2>&1
  rm -rf "$contract" "$contract.log" "$contract.openapi"
}
trap clean_up EXIT
set -m # each job in the background is a process group of its own
{
  deploy/local-kube/build.sh helm && deploy/local-kube/build.sh kubernetes &&
    deploy/local-kube/kube.sh up --names contract --nodes 3 --metrics --owner $$ --dir "$contract"
} >"$contract.log" 2>&1 &
contract_up=$!
deploy/openapi/check.sh >"$contract.openapi" 2>&1 &
openapi=$!
background+=("$contract_up" "$openapi")
set +m

case ${1:-} in --long)
  step "licences, bans, sources, known vulnerabilities"
  deploy/deny.sh
  deploy/advisories.sh ;;
esac

step "programs and tests are built"
# The end-to-end tests run the programs. In one command they are built with the features that the tests ask of libraries: built
# before, without these, all that uses these libraries would be compiled twice.
cargo build --locked --workspace --bins --tests
case ${1:-} in
  --long) export PROPTEST_CASES=${PROPTEST_CASES:-4096} DROVER_FUZZ_SECONDS=${DROVER_FUZZ_SECONDS:-600}; extra=(-- --include-ignored) ;;
  *) extra=() ;;
esac

step "Kubernetes, helm and a control plane"
wait $contract_up || { cat "$contract.log" >&2; exit 1; }

step "openapi/drover.json: lint, and nothing that breaks clients"
wait $openapi || { cat "$contract.openapi" >&2; exit 1; }
cat "$contract.openapi"
background=()

step "tests"
export DROVER_CONTRACT_KUBECONFIG=$contract/contract/kubeconfig
export DROVER_NO_SKIPS=1 # a test that lacks something fails
DROVER_TIMES=$(mktemp)
export DROVER_TIMES
lane() { DROVER_LANE=$1 cargo test --locked --workspace --no-fail-fast --config "target.'cfg(unix)'.runner=['$PWD/deploy/lane.sh']" "${@:2}" "${extra[@]}"; }
log=$(mktemp)
code=0
# Clippy uses what the tests leave of the processors. It begins when every lane has: until then they need the directory that it locks.
clippy() {
  local name
  for name in $LANES; do
    until [ -e "$log.over" ] || grep -qs ' Running ' "$log.$name"; do sleep 1; done
  done
  nice -n 19 cargo clippy --locked --workspace --all-targets -- -D warnings
}
set -m
lanes=()
for name in fuzz around whole; do
  wanted "$name" || continue
  lane "$name" --lib --bins --tests >"$log.$name" 2>&1 &
  lanes+=("$!:$name")
  background+=("$!")
  # The longer runs keep both processors busy for minutes: side by side, the clusters of one lane would miss time limits of another. How
  # the lane ended is asked again below.
  [ "${1:-}" != --long ] || [ "$name" = fuzz ] || wait "$!" || true
done
clippy >"$log.clippy" 2>&1 &
clippy=$!
background+=("$clippy")
set +m
if wanted hub; then
  lane hub 2>&1 | tee "$log.hub" || code=$?
  cat "$log.hub" >>"$log"
  rm "$log.hub"
fi
for lane in "${lanes[@]}"; do
  name=${lane#*:}
  step "tests of the lane $name"
  tail -n +1 -f --pid="${lane%%:*}" "$log.$name"
  wait "${lane%%:*}" || code=$?
  cat "$log.$name" >>"$log"
  rm "$log.$name"
done
step "clippy"
touch "$log.over"
wait "$clippy" || code=$?
tee -a "$log" <"$log.clippy"
rm "$log.clippy" "$log.over"
background=()

# Target directories of other toolchains and dependencies that were not used for a week.
touch "$CARGO_TARGET_DIR"
find "$DROVER_CACHE" -maxdepth 1 -name 'target-????????????' -mtime +7 -exec rm -rf {} +

step "seconds of each test program of all lanes, longest first"
sort -rn "$DROVER_TIMES"
rm "$DROVER_TIMES"

# Which tests failed, and how each panic begins, is repeated at the end: a failure in the middle of so much output is hard to find.
if [ $code != 0 ]; then
  step "what failed"
  grep -E '^error(\[|: )' "$log" || true
  awk '/^---- .* stdout ----$/ {print; left = 1; rows = 0; next} left && / panicked at / {rows = 4; left = 0} rows > 0 {print substr($0, 1, 300); rows--}' "$log"
fi

step "done"
awk '/^test result:/ {for (i = 2; i <= NF; i++) n[$i] += $(i - 1)} END {printf "%d passed, %d failed, %d skipped\n", n["passed;"], n["failed;"], n["ignored;"]}' "$log"
rm "$log"
exit $code
