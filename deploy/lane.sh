#!/usr/bin/env bash
# lane.sh PROGRAM [ARGUMENT...]: runs a test program if it belongs to the lane $DROVER_LANE, else does nothing. It is cargo's runner in
# deploy/test.sh, which runs four lanes: "around" (command line and agents) and "whole" (the whole system), which both mostly wait for
# clusters, "fuzz" (parsers, which use a fixed time of one processor and leave it to all others), and "hub" (everything else). Adds a
# line "SECONDS PACKAGE PROGRAM" to the file $DROVER_TIMES, also when the program fails.
case $PWD:${1##*/} in
  */services/autoscaler:path-* | */tests:clients-*) lane=hub ;; # the other lanes would end much later than this one
  */services/autoscaler:* | */services/drover:* | */services/memory-guard:* | */lab/cli:*) lane=around ;;
  */tests:fuzz-*) lane=fuzz ;;
  */tests:*) lane=whole ;;
  *) lane=hub ;;
esac
[ "$lane" = "$DROVER_LANE" ] || exit 0

# Each of the agents' tests has a namespace of its own and mostly waits for the agent's next pass.
case $PWD:${1##*/} in */services/autoscaler:agent-*) export RUST_TEST_THREADS=4 ;; esac

# Parts of the names of the scenarios on the three real control planes. These get them one after the other (tests/src/members.rs), so
# in one program a second thread would mostly wait for its turn. They run in a process of their own, beside one for all others.
on_real=(::real _on_a_real on_real_schedulers e2e::security:: e2e::clouds::)
run() {
  local name output others=() code=0
  case $PWD:${1##*/} in */tests:e2e-*) ;; */tests:fuzz-*) nice -n 19 "$@"; return ;; *) "$@"; return ;; esac
  for name in "${on_real[@]}"; do others+=(--skip "$name"); done
  output=$(mktemp)
  "$@" "${on_real[@]}" --test-threads=1 >"$output" 2>&1 &
  "$@" "${others[@]}" || code=$?
  wait $! || code=$?
  cat "$output"
  rm "$output"
  return $code
}

began=${EPOCHREALTIME/[.,]/}
code=0
run "$@" || code=$?
took=$((${EPOCHREALTIME/[.,]/} - began))
name=${1##*/}
printf '%d.%02d %s %s\n' $((took / 1000000)) $((took / 10000 % 100)) "$(basename "$PWD")" "${name%-*}" >>"$DROVER_TIMES"
exit $code
