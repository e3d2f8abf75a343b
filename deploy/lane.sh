#!/usr/bin/env bash
# lane.sh PROGRAM [ARGUMENT...]: runs a test program if it belongs to $DROVER_LANE, else does nothing. cargo's runner in
# deploy/test.sh: what is around the hub, command line and agents, mostly waits for clusters, so it is tested beside the hub.
case $PWD in
  */services/autoscaler | */services/drover | */services/memory-guard | */lab/cli) lane=around ;;
  *) lane=hub ;;
esac
[ "$lane" != "$DROVER_LANE" ] || exec "$@"
