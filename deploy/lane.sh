#!/usr/bin/env bash
# lane.sh PROGRAM [ARGUMENT...]: runs a test program if it belongs to $DROVER_LANE, else does nothing. deploy/test.sh sets it as cargo's
# runner: the tests of the command line and the agents mostly wait for clusters, so they run at the same time as those of the services.
case $PWD in
  */services/autoscaler | */services/drover | */services/memory-guard | */lab/cli) lane=around ;;
  *) lane=hub ;;
esac
[ "$lane" != "$DROVER_LANE" ] || exec "$@"
