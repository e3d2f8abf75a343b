#!/usr/bin/env bash
# try.sh PROGRAMS HELM: docker-compose.yml for real, as README says, under engine.sh: deploy/docker/engine.sh deploy/docker/try.sh …
#
# Starts the stack from an image of these programs (image.sh), registers three control planes of deploy/local-kube by address, tells the
# flagship story through the published port, kills a service, takes the stack down and up again, and ends with a drain and a deletion.
# Each "ok:" line is something that was checked.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
programs=$1 helm=$2
work=$(mktemp -d)
export COMPOSE_PROJECT_NAME=drover-try DROVER_SECRETS=$work/secrets DROVER_URL DROVER_TOKEN_FILE=$work/secrets/api-token DROVER_PORT
DROVER_PORT=$(python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])')
DROVER_URL=https://localhost:$DROVER_PORT DROVER_CA_FILE=$work/secrets/ca.pem
export DROVER_CA_FILE
unset DROVER_TOKEN DROVER_PROJECT
kube= # the job that starts the control planes
: "${DROVER_KUBE_BIN:=$(deploy/local-kube/build.sh kubernetes)}"
export DROVER_KUBE_BIN
drover() { "$programs/drover" "$@"; }
kubectl() { "$DROVER_KUBE_BIN/kubectl" --kubeconfig "$work/kube/$1/kubeconfig" "${@:2}"; }
ok() { echo "ok: $*"; }
die() { echo "try: $*" >&2; exit 1; }

clean_up() {
  local code=$?
  trap - EXIT
  [ $code = 0 ] || { docker-compose ps; docker-compose logs --no-color --tail 30; } >&2 || true
  docker-compose down --volumes >/dev/null 2>&1 || true
  [ -z "$kube" ] || wait "$kube" || true
  deploy/local-kube/kube.sh down --dir "$work/kube" >/dev/null 2>&1 || true
  rm -rf "$work"
}
trap clean_up EXIT

# until_true SECONDS WHAT CMD...
until_true() {
  local end=$((SECONDS + $1)) what=$2
  shift 2
  until "$@" >/dev/null 2>&1; do [ $SECONDS -lt $end ] || die "timed out: $what"; sleep 0.5; done
}
container() { podman ps --all --quiet --filter "label=com.docker.compose.service=$1"; }
state() { podman inspect --format "$2" "$(container "$1")"; }
services="gateway cluster-manager orchestrator placement migration resource-synchronizer traffic"
all_healthy() { [ "$(podman ps --quiet --filter health=healthy --filter label=com.docker.compose.service | wc -l)" = "$(wc -w <<<"postgres $services")" ]; }
up() { docker-compose up -d 2>&1 | cat >"$work/up.log" || { cat "$work/up.log" >&2; die "docker-compose up failed"; }; until_true 120 "all services are healthy" all_healthy; }
# homes: the cluster of each app that Drover calls Ready, as "app=cluster", sorted
homes() { drover get apps -o json | python3 -c 'import json, sys
print(*sorted(a["app"] + "=" + b["member"] for a in json.load(sys.stdin) for b in a["bindings"] if b["phase"] == "Ready"))'; }
at_home() { [ "$(homes)" = "$1" ]; }
# serves CLUSTER APP: whether all of the app's pods are ready there, as the cluster itself says
serves() { [ "$(kubectl "$1" get deployment "$2" -o 'jsonpath={.status.readyReplicas}/{.spec.replicas}')" = 2/2 ]; }
empty() { [ -z "$(kubectl "$1" get deployments -o name)" ]; }
ready_clusters() { [ "$(drover get clusters -o json | python3 -c 'import json, sys; print(sum(c["state"] == "Ready" and len(c["nodes"]) == 2 for c in json.load(sys.stdin)))')" = "$1" ]; }
manifest() { cat <<Y
apiVersion: apps/v1
kind: Deployment
metadata: {name: $1}
spec:
  replicas: 2
  selector: {matchLabels: {app: $1}}
  template:
    metadata: {labels: {app: $1}}
    spec: {containers: [{name: c, image: registry.example/app, resources: {requests: {cpu: 1500m, memory: 64Mi}}}]}
Y
}

# The control planes start meanwhile.
deploy/local-kube/kube.sh up --names private-a,private-b,public-c --nodes 2 --cpu 2 --memory 4Gi --lan --owner $$ --dir "$work/kube" >"$work/kube.log" 2>&1 &
kube=$!
deploy/docker/image.sh "$programs" "$helm" >"$work/image.log" 2>&1 || { tail -n 20 "$work/image.log" >&2; die "the image cannot be built"; }
ok "image drover:dev is built: $(podman images --format '{{.Size}}' docker.io/library/drover:dev)"
deploy/docker/secrets.sh "$work/secrets"
up
ok "docker-compose up: Postgres and the seven services are healthy after $SECONDS s"

# Who may read what, as seen by the busybox in the services' containers.
[ "$(stat -c %a "$work/secrets")" = 700 ] || die "others may enter the directory of the secrets"
for service in $services; do
  wanted="api-token ca $service-cert $service-key"
  case $service in
    cluster-manager) wanted+=" seal-key" ;;
    gateway | orchestrator | resource-synchronizer) wanted+=" $service-seal-key" ;;
  esac
  seen=$(podman exec "$(container $service)" /bin/busybox sh -c 'cd /run/secrets; echo *; busybox id -u; for f in * /bin/x; do (: >>$f) 2>/dev/null && echo "writes $f"; done; busybox cat /proc/1/environ | busybox tr "\0" " "')
  [ "$(sed -n '1p;2p' <<<"$seen" | tr '\n' ' ')" = "$wanted 65532 " ] || die "$service sees and is: $(sed -n '1p;2p' <<<"$seen")"
  ! grep -q ^writes <<<"$seen" || die "$service can write where it must not: $(grep ^writes <<<"$seen")"
  ! grep -qF -e "$(cat "$work/secrets/api-token")" <<<"$seen" || die "$service has a token in its environment"
done
! docker-compose logs --no-color 2>/dev/null | grep -qF "$(cat "$work/secrets/api-token")" || die "the API token is in a log"
ok "secrets: a directory of mode 700, in each container only what it needs, read by uid 65532, not writable, in no environment and no log"
[ "$(curl -s --cacert "$DROVER_CA_FILE" -o /dev/null -w '%{http_code}' "$DROVER_URL/v2/clusters")" = 401 ] || die "the gateway answers without a token"
for service in postgres ${services#gateway }; do
  [ $service = traffic ] || [ -z "$(podman port "$(container $service)")" ] || die "$service is published"
done
[ "$(curl -s -o /dev/null -w '%{http_code}' "http://localhost:$DROVER_PORT/healthz")" = 000 ] || die "the gateway answers without TLS"
# With the token of a client, but without a service's certificate.
placement=$(podman inspect --format '{{range .NetworkSettings.Networks}}{{.IPAddress}}{{end}}' "$(container placement)")
asked=$(curl -s --cacert "$DROVER_CA_FILE" --resolve "placement:9031:$placement" -H "Authorization: Bearer $(cat "$work/secrets/api-token")" \
  -o /dev/null -w '%{http_code}' https://placement:9031/internal/claims)
[ "$asked" = 401 ] || [ "$asked" = 403 ] || die "placement answers $asked without a certificate"
ok "only the gateway and a port for routes are published, on 127.0.0.1; the gateway speaks TLS, and wants the token; services want a certificate"

wait $kube || { tail -n 20 "$work/kube.log" >&2; die "the control planes do not start"; }
drover cluster add private-a --provider onprem --kubeconfig "$work/kube/private-a/kubeconfig"
drover cluster add private-b --provider onprem --kubeconfig "$work/kube/private-b/kubeconfig"
drover cluster add public-c --provider aws --kubeconfig "$work/kube/public-c/kubeconfig"
drover provider set onprem --priority 1
drover provider set aws --priority 5
until_true 120 "three clusters are ready" ready_clusters 3
ok "three control planes are registered by address: $(grep -ho 'https://[0-9.:]*' "$work"/kube/*/kubeconfig | tr '\n' ' ')"

manifest cart >"$work/cart.yaml"
manifest ledger >"$work/ledger.yaml"
drover deploy cart -f "$work/cart.yaml" --movable --wait
first=$(homes)
case $first in cart=onprem+private-a) only=private-a other=private-b ;; cart=onprem+private-b) only=private-b other=private-a ;; *) die "cart is not in the preferred cloud: $first" ;; esac
drover deploy ledger -f "$work/ledger.yaml" --only $only --wait
until_true 120 "cart made room for ledger" at_home "cart=onprem+$other ledger=onprem+$only"
serves $only ledger && serves $other cart || die "the clusters do not say so"
[ -z "$(kubectl $only get deployment cart --ignore-not-found -o name)" ] || die "the old copy of cart is left in $only"
ok "the newcomer made room: $(homes)"

pid=$(state orchestrator '{{.State.Pid}}')
kill -KILL "$pid"
restarted() { [ "$(state orchestrator '{{.State.Pid}}')" != "$pid" ] && [ "$(state orchestrator '{{.State.Running}}')" = true ] && all_healthy; }
until_true 120 "orchestrator is started again" restarted
until_true 120 "its answers are as before" at_home "cart=onprem+$other ledger=onprem+$only"
ok "orchestrator was killed and started again by the restart policy"

docker-compose down >"$work/down.log" 2>&1 || { cat "$work/down.log" >&2; die "docker-compose down failed"; }
[ -z "$(podman ps -aq)" ] || die "down leaves containers"
serves $only ledger && serves $other cart || die "apps stopped with Drover"
up
until_true 120 "the clusters are known again" ready_clusters 3
until_true 120 "the apps are known again" at_home "cart=onprem+$other ledger=onprem+$only"
ok "down and up: apps ran on, and everything is there again: $(homes)"

id=$(drover plan drain $other -o json | python3 -c 'import json, sys; print(json.load(sys.stdin)["id"])')
drover plan apply "$id" --wait
until_true 120 "cart has left $other" at_home "cart=aws+public-c ledger=onprem+$only"
serves public-c cart || die "cart does not serve on public-c"
drover delete cart
drover delete ledger
for cluster in private-a private-b public-c; do
  until_true 120 "$cluster is empty" empty $cluster
done
ok "$other was drained, and both apps were deleted; nothing is left in the clusters"
echo "docker-compose.yml: all of it holds, in $SECONDS s"
