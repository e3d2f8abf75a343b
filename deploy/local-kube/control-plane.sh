# Sourced by kube.sh: one control plane (etcd, kube-apiserver, kube-controller-manager, kube-scheduler, kwok unless its
# nodes are real, metrics-server if wanted) as plain processes on its own address. Called again, it starts only what has ended.
#
# For experiments, from the environment: APISERVER_EXTRA KCM_EXTRA SCHEDULER_EXTRA KWOK_EXTRA METRICS_EXTRA (flags),
# METRIC_RESOLUTION (10s), KWOK_CRDS=Stage,ClusterResourceUsage (kwok kinds to be changed through the API while running).

# In the order in which they stop.
COMPONENTS="metrics-server kwok kube-scheduler kube-controller-manager kube-apiserver etcd"
AUTH() { echo "--kubeconfig=$1 --authentication-kubeconfig=$1 --authorization-kubeconfig=$1"; }

# cluster_pki SET DIR IP SERVICES: certificates, tokens and kubeconfigs of one cluster
cluster_pki() {
  local ca=$1/.pki d=$2 ip=$3 service_ip=${4%.0/16}.1 who user group token
  [ "$(cat "$d/pki/ip" 2>/dev/null)" = "$ip" ] && return
  rm -rf "$d/pki" "$d/pki.partial"
  mkdir -p "$d/pki.partial"
  cert "$ca/ca" "$d/pki.partial/apiserver" /CN=kube-apiserver \
    "DNS:kubernetes,DNS:kubernetes.default,DNS:kubernetes.default.svc,DNS:localhost,IP:$ip,IP:127.0.0.1,IP:$service_ip"
  cert "$ca/front-proxy-ca" "$d/pki.partial/front-proxy-client" /CN=front-proxy-client ""
  cert "$ca/ca" "$d/pki.partial/kwok" /CN=kwok "IP:$ip"
  cert "$ca/ca" "$d/pki.partial/metrics-server" /CN=metrics-server "DNS:metrics-server.kube-system.svc,IP:$ip"
  openssl genrsa -out "$d/pki.partial/service-account.key" 2048 2>/dev/null
  openssl rsa -in "$d/pki.partial/service-account.key" -pubout -out "$d/pki.partial/service-account.pub" 2>/dev/null
  while read -r who user group; do
    token=$(openssl rand -hex 16)
    echo "$token,$user,$user,$group" >>"$d/pki.partial/tokens.csv"
    kubeconfig "$d/pki.partial/$who.kubeconfig" "$(basename "$d")" "https://$ip:6443" "$ca/ca.crt" "token: $token"
  done <<'Y'
admin admin system:masters
kwok kwok system:masters
metrics-server metrics-server system:masters
kube-controller-manager system:kube-controller-manager
kube-scheduler system:kube-scheduler
kube-proxy system:kube-proxy
Y
  cp "$d/pki.partial/admin.kubeconfig" "$d/kubeconfig"
  echo "$ip" >"$d/pki.partial/ip"
  mv "$d/pki.partial" "$d/pki"
}

# control_plane_up SET NAME IP KIND(kwok|real) METRICS(0|1)
control_plane_up() {
  local set=$1 name=$2 ip=$3 kind=$4 metrics=$5 d=$1/$2 i=${3##*.} reconciler= services pods k pki ask
  services=10.$((96 + i % 32)).0.0/16 pods=10.$((128 + i % 64)).0.0/16
  cluster_pki "$set" "$d" "$ip" "$services"
  pki=$d/pki k="kubectl --kubeconfig=$d/kubeconfig"
  echo "$kind" >"$d/kind"

  GOMEMLIMIT=256MiB start "$d" etcd etcd --name=n0 --data-dir="$d/etcd" \
    --listen-client-urls="http://$ip:2379" --advertise-client-urls="http://$ip:2379" \
    --listen-peer-urls="http://$ip:2380" --initial-advertise-peer-urls="http://$ip:2380" --initial-cluster="n0=http://$ip:2380" \
    --unsafe-no-fsync --snapshot-count=10000 --quota-backend-bytes=2147483648 --log-level=warn
  wait_for 120 "$name: etcd" curl -fsS "http://$ip:2379/health" || failed "$d" etcd

  # A loopback address cannot be published in the `kubernetes` Endpoints, so they are not reconciled there.
  case $ip in 127.*) reconciler=--endpoint-reconciler-type=none ;; esac
  GOMEMLIMIT=600MiB start "$d" kube-apiserver kube-apiserver $reconciler \
    --etcd-servers="http://$ip:2379" --bind-address="$ip" --secure-port=6443 --advertise-address="$ip" \
    --tls-cert-file="$pki/apiserver.crt" --tls-private-key-file="$pki/apiserver.key" --client-ca-file="$set/.pki/ca.crt" \
    --kubelet-certificate-authority="$set/.pki/ca.crt" --kubelet-client-certificate="$pki/apiserver.crt" --kubelet-client-key="$pki/apiserver.key" \
    --kubelet-preferred-address-types=InternalIP,Hostname \
    --token-auth-file="$pki/tokens.csv" --authorization-mode=Node,RBAC --anonymous-auth=true \
    --service-account-issuer=https://kubernetes.default.svc.cluster.local \
    --service-account-key-file="$pki/service-account.pub" --service-account-signing-key-file="$pki/service-account.key" \
    --requestheader-client-ca-file="$set/.pki/front-proxy-ca.crt" --requestheader-allowed-names=front-proxy-client \
    --requestheader-username-headers=X-Remote-User --requestheader-group-headers=X-Remote-Group --requestheader-extra-headers-prefix=X-Remote-Extra- \
    --proxy-client-cert-file="$pki/front-proxy-client.crt" --proxy-client-key-file="$pki/front-proxy-client.key" \
    --service-cluster-ip-range="$services" --allow-privileged=true --event-ttl=15m --profiling=false --v=1 ${APISERVER_EXTRA:-}
  # Asked by curl, which takes a fifth of the CPU time of kubectl: this is asked ten times a second.
  sed -n 's/^\([^,]*\),admin,.*/Authorization: Bearer \1/p' "$pki/tokens.csv" >"$pki/admin.header"
  ask=(curl -fsS --noproxy '*' --cacert "$set/.pki/ca.crt" --header "@$pki/admin.header")
  wait_for 180 "$name: kube-apiserver" "${ask[@]}" "https://$ip:6443/readyz" || failed "$d" kube-apiserver

  GOMEMLIMIT=300MiB start "$d" kube-controller-manager kube-controller-manager $(AUTH "$pki/kube-controller-manager.kubeconfig") \
    --authorization-always-allow-paths=/healthz,/readyz,/livez,/metrics --bind-address="$ip" --secure-port=10257 --leader-elect=false \
    --use-service-account-credentials=true --root-ca-file="$set/.pki/ca.crt" --service-account-private-key-file="$pki/service-account.key" \
    --cluster-signing-cert-file="$set/.pki/ca.crt" --cluster-signing-key-file="$set/.pki/ca.key" \
    --allocate-node-cidrs=false --service-cluster-ip-range="$services" --horizontal-pod-autoscaler-sync-period=15s \
    --kube-api-qps=100 --kube-api-burst=200 --profiling=false --v=1 ${KCM_EXTRA:-}
  GOMEMLIMIT=200MiB start "$d" kube-scheduler kube-scheduler $(AUTH "$pki/kube-scheduler.kubeconfig") \
    --authorization-always-allow-paths=/healthz,/readyz,/livez,/metrics --bind-address="$ip" --secure-port=10259 --leader-elect=false \
    --kube-api-qps=200 --kube-api-burst=400 --profiling=false --v=1 ${SCHEDULER_EXTRA:-}
  [ "$kind" = real ] || kwok_up "$d" "$ip" "$pods" "$k"
  [ "$metrics" = 0 ] || metrics_up "$set" "$d" "$ip" "$k"
  # Before its namespace has this account, a cluster refuses every pod.
  wait_for 120 "$name: service account" "${ask[@]}" "https://$ip:6443/api/v1/namespaces/default/serviceaccounts/default" ||
    failed "$d" kube-controller-manager
}

kwok_up() {
  local d=$1 ip=$2 pods=$3 k=$4 f config=() live=()
  for f in "$LOCAL_KUBE"/kwok/[0-9]*.yaml; do
    case ,${KWOK_CRDS:-}, in *,"$(awk '/^kind:/{print $2; exit}' "$f")",*) live+=(-f "$f") ;; *) config+=(--config="$f") ;; esac
  done
  if [ -n "${KWOK_CRDS:-}" ]; then
    $k apply -f "$DROVER_KUBE_BIN/kwok-crds/" >/dev/null
    $k wait --for=condition=Established crd --all --timeout=30s >/dev/null
    $k apply "${live[@]}" >/dev/null
    config+=(--enable-crds="$KWOK_CRDS")
  fi
  GOMEMLIMIT=200MiB start "$d" kwok kwok --kubeconfig="$d/pki/kwok.kubeconfig" "${config[@]}" \
    --manage-nodes-with-label-selector=type=kwok --node-ip="$ip" --node-name=kwok-controller --node-port=10247 --server-address="$ip:10247" \
    --cidr="$pods" --node-lease-duration-seconds=40 --tls-cert-file="$d/pki/kwok.crt" --tls-private-key-file="$d/pki/kwok.key" ${KWOK_EXTRA:-}
}

metrics_up() {
  local set=$1 d=$2 ip=$3 k=$4
  start "$d" metrics-server metrics-server $(AUTH "$d/pki/metrics-server.kubeconfig") --bind-address="$ip" --secure-port=4443 \
    --tls-cert-file="$d/pki/metrics-server.crt" --tls-private-key-file="$d/pki/metrics-server.key" --kubelet-insecure-tls --kubelet-use-node-status-port \
    --kubelet-preferred-address-types=InternalIP --metric-resolution="${METRIC_RESOLUTION:-10s}" --kubelet-request-timeout=5s ${METRICS_EXTRA:-}
  sed -e "s/@IP@/$ip/" -e "s/@CA@/$(inline "$set/.pki/ca.crt")/" "$LOCAL_KUBE/kwok/metrics-apiservice.yaml.in" | $k apply -f - >/dev/null
}

failed() { say "the end of $1/log/$2.log:"; tail -n 15 "$1/log/$2.log" >&2; exit 1; }

# fake_nodes COUNT CLUSTER CPU MEMORY: prints that many Node objects for kwok
fake_nodes() {
  local i
  for i in $(seq "$1"); do cat <<Y
---
apiVersion: v1
kind: Node
metadata:
  name: $2-$i
  annotations: {node.alpha.kubernetes.io/ttl: "0", metrics.k8s.io/resource-metrics-path: "/metrics/nodes/$2-$i/metrics/resource"}
  labels: {type: kwok, kubernetes.io/hostname: "$2-$i", kubernetes.io/os: linux, kubernetes.io/arch: amd64, beta.kubernetes.io/os: linux, beta.kubernetes.io/arch: amd64, topology.kubernetes.io/zone: "z$((i % 3))"}
status:
  allocatable: {cpu: "$3", memory: "$4", ephemeral-storage: 100Gi, pods: "110"}
  capacity: {cpu: "$3", memory: "$4", ephemeral-storage: 100Gi, pods: "110"}
Y
  done
}
