#!/usr/bin/env bash
# kube.sh up   [--clusters 3 | --names a,b,c] [--nodes 5] [--cpu 4] [--memory 8Gi] [--metrics] [--real | --lan] [--owner PID] [--dir DIR]
# kube.sh down [--only NAME] [--keep] [--dir DIR]
# kube.sh list [--dir DIR]
#
# A set of real Kubernetes control planes on this machine, without a container engine. DIR (default
# $DROVER_CACHE/run/kube) has all files of one set; sets in different directories are independent.
#   up      starts what is not running yet, so it can be repeated: after a kill, or with more clusters or nodes.
#           Returns when all is ready. DIR/NAME/kubeconfig needs no other file (certificates inline).
#           --owner PID: the set is taken down when that process ends, however it ends.
#   down    stops exactly the processes recorded in DIR and removes their state (--keep: keeps it for the next up).
#   list    one line per cluster: name, server, kubeconfig, running|stopped|damaged, kwok|real, metrics|-
# --real: kubelets with containerd instead of simulated nodes; root, and the packages of `setup.sh --real`.
# --lan: simulated nodes, but at addresses that containers of this machine can reach, as those of --real, instead of loopback.
# The programs come from build.sh, or from DROVER_KUBE_BIN (and DROVER_KUBE_IMAGES).
set -euo pipefail
HERE=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
. "$HERE/lib.sh"
. "$HERE/control-plane.sh"

usage() { sed -n '2,17s/^# \{0,1\}//p' "$0" >&2; exit 2; }

verb=${1:-}
[ $# -gt 0 ] && shift
clusters=3 names= nodes=5 cpu= memory= metrics=0 kind=kwok lan=0 owner= only= keep=0 DIR=$DROVER_CACHE/run/kube
while [ $# -gt 0 ]; do
  case $1 in
    --metrics) metrics=1 ;;
    --real) kind=real ;;
    --lan) lan=1 ;;
    --keep) keep=1 ;;
    --clusters | --names | --nodes | --cpu | --memory | --owner | --only | --dir)
      [ $# -gt 1 ] || usage
      case $1 in --dir) DIR=$2 ;; *) printf -v "${1#--}" %s "$2" ;; esac
      shift ;;
    *) usage ;;
  esac
  shift
done
[[ $clusters =~ ^[1-9][0-9]{0,2}$ && $nodes =~ ^[0-9]{1,4}$ ]] || die "--clusters takes 1-999 and --nodes 0-9999"
: "${names:=$(seq -s, -f 'member-%g' "$clusters")}"
[[ $names =~ ^[a-z0-9]([-a-z0-9]{0,30}[a-z0-9])?(,[a-z0-9]([-a-z0-9]{0,30}[a-z0-9])?)*$ ]] || die "--names takes DNS labels of at most 32 characters, separated by commas"

lock() { mkdir -p "$DIR"; DIR=$(cd "$DIR" && pwd); exec 9>"$DIR/.lock"; flock 9; }
members() { local f; for f in "$DIR"/*/ip; do [ -e "$f" ] && basename "$(dirname "$f")"; done; }

one_up() {
  local name=$1 d=$DIR/$1 ip k n
  # the kind of a cluster cannot change: its address and certificates depend on it
  [ "$(cat "$d/kind" 2>/dev/null || echo $kind)" = $kind ] || die "$name already exists with other nodes ($(cat "$d/kind")); take it down first"
  case $kind$lan in
    kwok0) ip=$(claim_address 127.0.1 1 250 "$d") ;;
    *) ip=$(claim_address $REAL_NET 1 9 "$d") ;;
  esac
  control_plane_up "$DIR" "$name" "$ip" $kind $metrics
  say "$name: control plane ready at https://$ip:6443"
  [ "$nodes" -gt 0 ] || return 0
  k="kubectl --kubeconfig=$d/kubeconfig"
  case $kind in
    kwok) fake_nodes "$nodes" "$name" "${cpu:-4}" "${memory:-8Gi}" | $k apply -f - >/dev/null ;;
    real) for n in $(seq "$nodes"); do NODE_CPU=$cpu NODE_MEMORY=$memory "$HERE/node/node.sh" up "$d" "$n" || exit 1; done ;;
  esac
  $k wait --for=condition=Ready node --all --timeout=180s >/dev/null || die "$name: nodes did not get ready, see $d/log"
  say "$name: $nodes nodes ready"
}

up() {
  local name pid pids=() bad=0
  need openssl curl setsid=util-linux flock=util-linux awk=mawk
  export DROVER_KUBE_BIN=${DROVER_KUBE_BIN:-$("$HERE/build.sh" kubernetes)}
  PATH=$DROVER_KUBE_BIN:$PATH
  lock
  make_ca "$DIR/.pki"
  [ $kind != real ] || export DROVER_KUBE_IMAGES=${DROVER_KUBE_IMAGES:-$("$HERE/build.sh" pause)}
  if [ $kind$lan != kwok0 ]; then
    for name in ${names//,/ }; do claim_address $REAL_NET 1 9 "$DIR/$name" >/dev/null; done
    "$HERE/node/node.sh" lan
  fi
  if [ -n "$owner" ]; then
    stop "$DIR" owner
    start "$DIR" owner bash -c 'tail --pid="$1" -f /dev/null; exec "$2" down --dir "$3"' owner "$owner" "$HERE/kube.sh" "$DIR"
  fi
  for name in ${names//,/ }; do one_up "$name" & pids+=($!); done
  for pid in "${pids[@]}"; do wait "$pid" || bad=1; done
  [ $bad = 0 ] || die "not everything came up; logs are in $DIR/*/log, and \`up\` may be run again"
  list
}

one_down() {
  local name=$1 d=$DIR/$1 n
  [ "$(cat "$d/kind" 2>/dev/null)" != real ] || for n in "$d"/nodes/*; do
    [ -e "$n" ] && "$HERE/node/node.sh" down "$d" "$(basename "$n")"
  done
  if [ $keep = 1 ]; then
    stop "$d" ${COMPONENTS/etcd/}
    stop "$d" etcd
  else
    STOP_NOW=1 stop "$d" $COMPONENTS
    rm -rf "$d"
  fi
  say "$name: down"
}

down() {
  local name
  [ -d "$DIR" ] || return 0
  lock
  [ -n "$only" ] && [ ! -e "$DIR/$only/ip" ] && die "no cluster $only in $DIR"
  # The process that watches --owner must not stop itself when it is the caller.
  [ -n "$only" ] || [ "$(pid_of "$DIR" owner)" = $$ ] || stop "$DIR" owner
  for name in ${only:-$(members)}; do one_down "$name" & done
  wait
  [ -n "$only" ] || [ $keep = 1 ] || { "$HERE/node/node.sh" lan-down; rm -rf "$DIR"/{.pki,pid,log}; }
}

list() {
  local name d c state
  for name in $(members); do
    d=$DIR/$name state=
    for c in etcd kube-apiserver kube-controller-manager kube-scheduler; do
      if pid_of "$d" $c >/dev/null; then state+=r; else state+=s; fi
    done
    case $state in rrrr) state=running ;; ssss) state=stopped ;; *) state=damaged ;; esac
    printf '%s\t%s\t%s\t%s\t%s\t%s\n' "$name" "https://$(cat "$d/ip"):6443" "$d/kubeconfig" "$state" "$(cat "$d/kind" 2>/dev/null || echo -)" \
      "$(if pid_of "$d" metrics-server >/dev/null; then echo metrics; else echo -; fi)"
  done
}

case $verb in up | down | list) $verb ;; *) usage ;; esac
