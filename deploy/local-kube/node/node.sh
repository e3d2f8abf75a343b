#!/usr/bin/env bash
# node.sh lan                     makes the bridge that all real nodes and their control planes share
# node.sh up CLUSTER-DIR N        starts the N-th real node of a cluster of kube.sh --real, or what has ended of it
# node.sh down CLUSTER-DIR N      stops the node and removes everything of it
# node.sh exec CLUSTER-DIR N CMD  runs CMD inside the node
# node.sh lan-down                removes the bridge if no cluster and no node uses it
#
# A node is: a network namespace on the bridge, a mount namespace with /var/lib/kubelet, /var/lib/containerd,
# /run/containerd, /etc/cni … of its own, a cgroup root of its own, one containerd 1.6, one kubelet and, unless
# PROXY=none, one kube-proxy (PROXY=nftables|iptables). Needs root and cgroup v1. Called by kube.sh under the set's lock.
#   NODE_CONTAINERD        directory of a containerd 2 (containerd/build.sh) to run instead of the machine's 1.6; with NRI
#   NODE_CPU NODE_MEMORY   allocatable, if the machine has more (the rest is reserved); default: all but 1Gi
set -euo pipefail
HERE=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
. "$HERE/../lib.sh"
PATH=${NODE_CONTAINERD:+$NODE_CONTAINERD:}${DROVER_KUBE_BIN:-}:$PATH:/usr/sbin:/sbin
POD_NET=10.200 LAN=drover-lan
: "${PROXY:=nftables}" "${SNAPSHOTTER:=overlayfs}"
PRIVATE="/var/lib/kubelet /var/lib/containerd /run/containerd /var/lib/cni /etc/cni /var/log/pods /var/log/containers /run/netns /run/drover-memory-guard"

controllers() { awk -F' - ' '$2 ~ /^cgroup / {split($1, a, " "); print a[5]}' /proc/self/mountinfo | grep '^/sys/fs/cgroup/' | sort -u; }
inside() { nsenter -t "$(pid_of "$D" holder)" -m -n -u -- "$@"; }

# node CLUSTER-DIR N: sets the names of everything that belongs to the node. Its number is unique on the machine, from its address.
node() {
  C=$1 D=$1/nodes/$2 IP=$(claim_address $REAL_NET 101 120 "$1/nodes/$2")
  NUM=$((${IP##*.} - 100)) NAME=$(basename "$1")-$2
  NS=drover-n$NUM
}

check_machine() {
  [ "$(id -u)" = 0 ] || die "real nodes need root"
  need containerd runc ip=iproute2 nft=nftables iptables nsenter=util-linux sysctl=procps
  [ -x /usr/lib/cni/bridge ] || die "missing: containernetworking-plugins (as root: apt-get install -y containernetworking-plugins)"
  controllers | grep -q memory || die "real nodes need cgroup v1 controllers in /sys/fs/cgroup; this machine has none"
}

# One process at a time makes or removes the bridge. The lock belongs to the machine's network namespace, as the bridge does, and not to
# a directory: sets with another DROVER_CACHE or in another mount namespace share the bridge too.
lan_lock() { exec 8</proc/self/ns/net; flock 8; }

# Whether the machine's end of the bridge leads to a bridge that cannot be seen from here. The bridge's namespace has its name by a mount
# below /run/netns; a process in another mount namespace may share the machine's network and not see that mount.
lan_is_hidden() {
  local here there
  here=$(ip -o link show $UPLINK 2>/dev/null) || return 1
  there=$(ip -n $LAN -o link show root 2>/dev/null) || return 0
  # "2: drover-root@if3: ..." and "3: root@if2: ..." name each other's index.
  [[ "$here|$there" =~ ^([0-9]+):\ [^@]+@if([0-9]+):.*\|([0-9]+):\ root@if([0-9]+): ]] || return 0
  [ "${BASH_REMATCH[1]} ${BASH_REMATCH[2]}" != "${BASH_REMATCH[4]} ${BASH_REMATCH[3]}" ]
}

# The bridge lives in a network namespace of its own, so that the machine's firewall (Docker's FORWARD policy DROP, say)
# cannot drop traffic between nodes. The machine has one veth into it with the addresses of the control planes.
# Whatever an interrupted run left out is made up for.
lan() {
  local i
  check_machine
  ! lan_is_hidden || die "$UPLINK leads to a bridge of another mount namespace: take its clusters down there first (or: ip link del $UPLINK)"
  [ -e /run/netns/$LAN ] || ip netns add $LAN
  ip -n $LAN link show lo >/dev/null 2>&1 ||
    die "/run/netns/$LAN is a network namespace in another mount namespace only: take its clusters down there first (or: rm /run/netns/$LAN)"
  ip -n $LAN link show br0 >/dev/null 2>&1 || ip -n $LAN link add br0 type bridge
  ip link show $UPLINK >/dev/null 2>&1 || ip link add $UPLINK type veth peer name root netns $LAN
  ip -n $LAN link set lo up
  ip -n $LAN link set br0 up
  ip -n $LAN link set root master br0 up
  ip link set $UPLINK up
  for i in $(seq 9); do ip addr replace $REAL_NET.$i/24 dev $UPLINK; done
}

# Removes the bridge unless a cluster has claimed an address, something answers at one (a cluster of another DROVER_CACHE, whose claims are
# not seen here), a node is connected, or the bridge cannot be seen from here, so that none of this is certain. A cluster claims its
# address before it asks for the bridge: who comes up while another goes down finds it, or makes it anew.
lan_down() {
  local i links
  [ -e /run/netns/$LAN ] || return 0
  for i in $(seq 9); do
    ! holder_of $REAL_NET.$i >/dev/null || return 0
    free $REAL_NET.$i || return 0
  done
  links=$(ip -n $LAN -o link show 2>/dev/null) && ! lan_is_hidden || { say "the bridge $UPLINK stays: it belongs to another mount namespace"; return 0; }
  [[ ! $links =~ :\ node[0-9] ]] || return 0
  ip link del $UPLINK 2>/dev/null || true
  ip netns del $LAN
}

network() {
  local other
  [ ! -e /run/netns/$NS ] || return 0
  ip -n $LAN link del "node$NUM" 2>/dev/null || true
  ip netns add $NS
  ip -n $LAN link add "node$NUM" type veth peer name eth0 netns $NS
  ip -n $LAN link set "node$NUM" master br0 up
  ip -n $NS addr add $IP/24 dev eth0
  ip -n $NS link set eth0 up
  ip -n $NS link set lo up
  ip -n $NS route add default via $REAL_NET.1
  nsenter --net=/run/netns/$NS sysctl -qw net.ipv4.ip_forward=1 net.ipv4.conf.all.rp_filter=0 2>/dev/null || true
  for other in $(seq 20); do [ "$other" = $NUM ] || ip -n $NS route add $POD_NET.$other.0/24 via $REAL_NET.$((100 + other)); done
  ip route replace $POD_NET.$NUM.0/24 via $IP dev $UPLINK
}

# A sleeping process keeps the mount and host name namespaces. Not `ip netns exec`, which remounts /sys without the cgroups.
hold() {
  local p
  ! pid_of "$D" holder >/dev/null || return 0
  for p in $PRIVATE; do mkdir -p "$p" "$D/fs$p"; done
  rm -f "$D/held"
  start "$D" holder nsenter --net=/run/netns/$NS unshare -m -u --propagation slave sh -c '
    set -e; d=$1 n=$2; shift 2
    for p; do mount --bind "$d/fs$p" "$p"; done
    mount --make-rshared /
    hostname "$n"; : >"$d/held"; exec sleep infinity' holder "$D" "$NAME" $PRIVATE
  wait_for 10 "$NAME: namespaces" test -e "$D/held"
}

# What the node reserves, so that NODE_CPU and NODE_MEMORY are left for pods.
reserved() {
  local cores kib cpu=0 mem=1024 want
  cores=$(($(nproc) * 1000)) kib=$(awk '/^MemTotal/{print $2}' /proc/meminfo)
  case ${NODE_CPU:-} in '') ;; *m) cpu=$((cores - ${NODE_CPU%m})) ;; *) cpu=$((cores - NODE_CPU * 1000)) ;; esac
  case ${NODE_MEMORY:-} in
    '') ;;
    *Gi) want=$((${NODE_MEMORY%Gi} * 1024)) ;;
    *Mi) want=${NODE_MEMORY%Mi} ;;
    *) die "real nodes take --memory in Gi or Mi" ;;
  esac
  [ -z "${want:-}" ] || mem=$((kib / 1024 - want - 100)) # 100Mi are kept by the eviction threshold
  echo "{cpu: \"$((cpu > 0 ? cpu : 0))m\", memory: \"$((mem > 0 ? mem : 0))Mi\"}"
}

configure() {
  local ca set_ca api dns
  set_ca=$(dirname "$C")/.pki ca=$set_ca/ca.crt api=https://$(cat "$C/ip"):6443
  dns=10.$((96 + $(cut -d. -f4 "$C/ip") % 32)).0.10
  mkdir -p "$D"/{pki,etc,fs/etc/cni/net.d}
  sed "s#@ROOT@#/var/lib/containerd#; s#@STATE@#/run/containerd#; s#@CNI@#/etc/cni/net.d#; s#@PAUSE@#drover.local/pause:1#; s#@SNAPSHOTTER@#$SNAPSHOTTER#" \
    "$HERE/containerd${NODE_CONTAINERD:+-2}.toml.in" >"$D/etc/containerd.toml"
  sed "s#@SUBNET@#$POD_NET.$NUM.0/24#" "$HERE/10-bridge.conflist.in" >"$D/fs/etc/cni/net.d/10-bridge.conflist"
  echo "nameserver $dns" >"$D/etc/resolv.conf"
  if [ ! -s "$D/kubelet.kubeconfig" ]; then
    cert "$set_ca/ca" "$D/pki/kubelet" "/CN=$NAME" "DNS:$NAME,IP:$IP"
    cert "$set_ca/ca" "$D/pki/client" "/O=system:nodes/CN=system:node:$NAME" ""
    kubeconfig "$D/kubelet.kubeconfig" "$NAME" "$api" "$ca" \
      "client-certificate-data: $(inline "$D/pki/client.crt"), client-key-data: $(inline "$D/pki/client.key")"
  fi
  sed -e "s#@CGROUP@#$NS#; s#@IP@#$IP#g; s#@CA@#$ca#; s#@PKI@#$D/pki/kubelet#g; s#@DNS@#$dns#; s#@RESERVED@#$(reserved)#; s#@RESOLV@#$D/etc/resolv.conf#" \
    "$HERE/kubelet.yaml.in" >"$D/etc/kubelet.yaml"
  cat >"$D/etc/kube-proxy.yaml" <<Y
apiVersion: kubeproxy.config.k8s.io/v1alpha1
kind: KubeProxyConfiguration
mode: $PROXY
hostnameOverride: $NAME
clientConnection: {kubeconfig: $C/pki/kube-proxy.kubeconfig}
clusterCIDR: $POD_NET.0.0/16
healthzBindAddress: $IP:10256
metricsBindAddress: 127.0.0.1:10249
conntrack: {maxPerCore: 0, min: 0, tcpEstablishedTimeout: 0s, tcpCloseWaitTimeout: 0s}
Y
}

up() {
  local c image
  check_machine
  network
  # The kubelet refuses a cgroup root that does not exist in every controller.
  for c in $(controllers); do
    mkdir -p "$c/$NS"
    case $c in */cpuset) cat "$c/cpuset.cpus" >"$c/$NS/cpuset.cpus"; cat "$c/cpuset.mems" >"$c/$NS/cpuset.mems" ;; esac
  done
  hold
  configure
  local enter="nsenter -t $(pid_of "$D" holder) -m -n -u --"
  start "$D" containerd $enter containerd -c "$D/etc/containerd.toml"
  wait_for 60 "$NAME: containerd" inside ctr version
  for image in "$DROVER_KUBE_IMAGES"/*.tar ${EXTRA_IMAGES:-}; do inside ctr -n k8s.io images import "$image" >>"$D/log/images.log" 2>&1; done
  start "$D" kubelet $enter "$DROVER_KUBE_BIN/kubelet" --config="$D/etc/kubelet.yaml" --kubeconfig="$D/kubelet.kubeconfig" \
    --hostname-override="$NAME" --node-ip="$IP" --node-labels=type=real --root-dir=/var/lib/kubelet --cert-dir="$D/pki" ${KUBELET_EXTRA:-}
  [ "$PROXY" = none ] || start "$D" kube-proxy $enter "$DROVER_KUBE_BIN/kube-proxy" --config="$D/etc/kube-proxy.yaml"
  wait_for 180 "$NAME: registration" kubectl --kubeconfig="$C/kubeconfig" get node "$NAME" || { tail -n 15 "$D/log/kubelet.log" >&2; exit 1; }
}

down() {
  set +e
  local c s holder mounts
  stop "$D" kube-proxy kubelet
  if holder=$(pid_of "$D" holder); then
    mounts=$(readlink "/proc/$holder/ns/mnt")
    for c in $(inside ctr -n k8s.io tasks ls -q 2>/dev/null); do inside ctr -n k8s.io tasks kill -s 9 "$c" 2>/dev/null; done
    for c in $(inside ctr -n k8s.io containers ls -q 2>/dev/null); do
      inside ctr -n k8s.io tasks delete -f "$c"
      inside ctr -n k8s.io containers delete "$c"
    done >/dev/null 2>&1
    stop "$D" containerd
    # Remaining shims: only those in this node's mount namespace.
    for s in $(pgrep -f containerd-shim-runc-v2); do [ "$(readlink "/proc/$s/ns/mnt")" = "$mounts" ] && kill -9 "$s"; done
    STOP_NOW=1 stop "$D" holder
  fi
  ip netns del $NS 2>/dev/null
  ip -n $LAN link del "node$NUM" 2>/dev/null
  ip route del $POD_NET.$NUM.0/24 2>/dev/null
  for c in $(controllers) /sys/fs/cgroup/unified; do [ -d "$c/$NS" ] && find "$c/$NS" -depth -type d -exec rmdir {} \; 2>/dev/null; done
  wait_for 5 "$NAME: unmounted" rm -rf "$D"
  true
}

case ${1:-} in
  lan) lan_lock; lan ;;
  lan-down) lan_lock; lan_down ;;
  up | down) node "$2" "$3"; "$1" ;;
  exec) node "$2" "$3"; shift 3; inside "$@" ;;
  *) sed -n '2,12s/^# \{0,1\}//p' "$0" >&2; exit 2 ;;
esac
