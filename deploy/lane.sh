#!/usr/bin/env bash
# lane.sh PROGRAM [ARGUMENT...]: runs a test program if it belongs to the lane $DROVER_LANE, else does nothing. It is cargo's
# runner in deploy/test.sh, which runs four lanes side by side, because most tests wait for clusters: "agents", "line" (the
# command line, and two long programs of the whole system), "whole" (the rest of the whole system) and "hub" (everything
# else). They should end at about the same time. Adds a line "SECONDS PACKAGE PROGRAM" to the file $DROVER_TIMES, also when the
# program fails.
case $PWD:${1##*/} in
  */services/autoscaler:path-* | */tests:clients-* | */tests:contract-*) lane=hub ;;
  */services/autoscaler:* | */services/memory-guard:*) lane=agents ;;
  */services/drover:* | */lab/cli:* | */tests:kills-* | */tests:compose-*) lane=line ;;
  */tests:*) lane=whole ;;
  *) lane=hub ;;
esac
[ "$lane" = "$DROVER_LANE" ] || exit 0
began=${EPOCHREALTIME/[.,]/}
code=0
"$@" || code=$?
took=$((${EPOCHREALTIME/[.,]/} - began))
name=${1##*/}
printf '%d.%02d %s %s\n' $((took / 1000000)) $((took / 10000 % 100)) "$(basename "$PWD")" "${name%-*}" >>"$DROVER_TIMES"
exit $code
