#!/usr/bin/env bash
# lane.sh PROGRAM [ARGUMENT...]: runs a test program if it belongs to $DROVER_LANE, else does nothing. cargo's runner in
# deploy/test.sh: the agents' tests mostly wait for kubelets and controllers, so they run beside the hub's.
case $PWD in
  */services/autoscaler | */services/memory-guard) lane=agents ;;
  *) lane=hub ;;
esac
[ "$lane" != "$DROVER_LANE" ] || exec "$@"
