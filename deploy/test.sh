#!/usr/bin/env bash
# test.sh [--long]: everything `make test` does, from an empty machine to a closing line "N passed, N failed".
# --long also runs the tests marked #[ignore], more cases of the property tests, and cargo-deny (as `make lint` does).
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
step() { echo "== $* ($(date +%T))"; }

step "what the machine lacks"
deploy/setup.sh test $(case ${1:-} in --long) echo long ;; esac)
. deploy/env.sh

step "docker-compose.yml and deploy scripts"
deploy/docker/check.sh

step "format"
cargo fmt --all --check

step "Kubernetes and helm (cached)"
DROVER_KUBE_BIN=$(deploy/local-kube/build.sh kubernetes)
DROVER_HELM=$(deploy/local-kube/build.sh helm)/helm
DROVER_BIN=$CARGO_TARGET_DIR/debug/drover
export DROVER_KUBE_BIN DROVER_HELM DROVER_BIN

# One for all tests that compare with a real API server; it comes up beside clippy. Its owner is this script: it goes down
# however that ends.
contract=$(mktemp -d)
clean_up() {
  deploy/local-kube/kube.sh down --dir "$contract" >"$contract.log" 2>&1
  rm -rf "$contract" "$contract.log"
}
trap clean_up EXIT
deploy/local-kube/kube.sh up --names contract --nodes 3 --metrics --owner $$ --dir "$contract" >"$contract.log" 2>&1 &
contract_up=$!

step "clippy"
cargo clippy --locked --workspace --all-targets -- -D warnings

case ${1:-} in --long)
  step "licences, bans, sources"
  deploy/deny.sh ;;
esac

step "tests"
cargo build --locked --workspace --bins # the end-to-end tests run them
case ${1:-} in
  --long) export PROPTEST_CASES=${PROPTEST_CASES:-4096}; extra=(-- --include-ignored) ;;
  *) extra=() ;;
esac
wait $contract_up || { cat "$contract.log" >&2; exit 1; }
export DROVER_CONTRACT_KUBECONFIG=$contract/contract/kubeconfig
export DROVER_NO_SKIPS=1 # a test that lacks something fails
cargo test --locked --workspace --no-run
lane() { DROVER_LANE=$1 cargo test --locked --workspace --no-fail-fast --config "target.'cfg(unix)'.runner=['$PWD/deploy/lane.sh']" "${@:2}" "${extra[@]}"; }
log=$(mktemp)
code=0
set -m # the lane beside this one is a process group: it ends with this script
lane around --lib --bins --tests >"$log.around" 2>&1 &
around=$!
trap 'kill -- -$around || true; clean_up' EXIT
set +m
lane hub 2>&1 | tee "$log" || code=$?
step "tests of command line and agents, which ran beside those"
tail -n +1 -f --pid=$around "$log.around"
wait $around || code=$?
trap clean_up EXIT
cat "$log.around" >>"$log"
rm "$log.around"

# Build trees of other pins that nobody used for a week.
touch "$CARGO_TARGET_DIR"
find "$DROVER_CACHE" -maxdepth 1 -name 'target-????????????' -mtime +7 -exec rm -rf {} +

step "the ten slowest programs of tests, in seconds"
awk '/^ +(Running|Doc-tests) / {name = $NF; gsub(/.*[/]|-[0-9a-f]+[)]$/, "", name)} /^test result:/ {sub(/s$/, "", $NF); print $NF, name}' "$log" | sort -rn | sed -n 1,10p

step "done"
awk '/^test result:/ {for (i = 2; i <= NF; i++) n[$i] += $(i - 1)} END {printf "%d passed, %d failed, %d skipped\n", n["passed;"], n["failed;"], n["ignored;"]}' "$log"
rm "$log"
exit $code
