#!/usr/bin/env bash
# build.sh kubernetes|helm|pause [--print]
#
# Builds programs from pinned Go modules, once, and prints the directory they are in:
#   kubernetes   etcd, kube-*, kubectl, kubelet, kwok, metrics-server   (about 8 minutes on 2 idle cores)
#   helm         helm                                                   (about 2 minutes)
#   pause        the sandbox image of real nodes, and a busybox image if Debian's busybox-static is there
# --print only says where the result is or would be.
#
# The result lives outside the clone, in $DROVER_CACHE (~/.cache/drover), keyed by what decides it: go.mod, go.sum,
# this script, the Go version. It appears under its name only when whole, so a killed build leaves nothing half done.
set -euo pipefail
HERE=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
: "${DROVER_CACHE:=$HOME/.cache/drover}"
PATH=$PATH:/usr/local/go/bin
export GOTOOLCHAIN=local CGO_ENABLED=0 GOWORK=off GOFLAGS=-mod=readonly

KUBERNETES=v1.36.3 HELM=v3.21.4 METRICS_SERVER=v0.9.0

say() { echo "local-kube: $*" >&2; }
die() { say "$*"; exit 1; }
minor() { local v=${1#v1.}; echo "${v%%.*}"; }

# What `kubectl version` and version checks of the programs see.
stamp() {
  printf -- "-X $1.%s " "gitVersion=$KUBERNETES" gitMajor=1 "gitMinor=$(minor $KUBERNETES)" gitTreeState=clean \
    gitCommit=0000000000000000000000000000000000000000 buildDate=2026-07-01T00:00:00Z
}

# `go build -v` as a line now and then; errors as they are.
compile() {
  go build -v -trimpath "$@" 2>&1 | awk '/^go: downloading/ {next} /^[^ :]+$/ {if (++n % 250 == 0) {print "local-kube: " n " packages compiled"; fflush()}; next} {print}' >&2
}

build_kubernetes() {
  local k=k8s.io/kubernetes/cmd
  (cd "$HERE/kubernetes" && compile -o "$1/" -ldflags "-s -w $(stamp k8s.io/component-base/version) $(stamp k8s.io/client-go/pkg/version) \
      -X sigs.k8s.io/metrics-server/pkg/version.gitVersion=$METRICS_SERVER" \
    $k/kube-apiserver $k/kube-controller-manager $k/kube-scheduler $k/kubectl $k/kubelet $k/kube-proxy \
    sigs.k8s.io/kwok/cmd/kwok sigs.k8s.io/metrics-server/cmd/metrics-server go.etcd.io/etcd/server/v3)
  mv "$1/server" "$1/etcd" # etcd's main package is called "server"
  # kwok's own kinds, for clusters started with KWOK_CRDS
  mkdir "$1/kwok-crds"
  cp "$(cd "$HERE/kubernetes" && go list -m -f '{{.Dir}}' sigs.k8s.io/kwok)"/kustomize/crd/bases/*.yaml "$1/kwok-crds/"
}

# Helm renders for the Kubernetes version it believes to have been built for, hence the chartutil stamps.
build_helm() {
  local h=helm.sh/helm/v3 p stamps="-X helm.sh/helm/v3/internal/version.version=$HELM -X helm.sh/helm/v3/internal/version.gitTreeState=clean"
  for p in pkg/chartutil pkg/lint/rules; do stamps+=" -X $h/$p.k8sVersionMajor=1 -X $h/$p.k8sVersionMinor=$(minor $KUBERNETES)"; done
  (cd "$HERE/helm" && compile -ldflags "-s -w $stamps" -o "$1/" $h/cmd/helm)
}

build_pause() {
  local applet links=()
  (cd "$HERE/images/pause" && compile -ldflags '-s -w' -o "$1/pause" main.go)
  python3 "$HERE/images/mkimage.py" "$1/pause.tar" drover.local/pause:1 /pause "$1/pause=/pause" >&2
  [ -x /bin/busybox ] || return 0
  for applet in sh ls cat sleep echo hostname httpd nc ps env mkdir rm true false head tail grep wget; do links+=(--link "busybox=/bin/$applet"); done
  python3 "$HERE/images/mkimage.py" "$1/busybox.tar" drover.local/busybox:1 /bin/sh /bin/busybox=/bin/busybox "${links[@]}" >&2
}

what=${1:-}
case $what in
  kubernetes) takes="8 minutes" inputs=(kubernetes/go.mod kubernetes/go.sum) ;;
  helm) takes="2 minutes" inputs=(helm/go.mod helm/go.sum) ;;
  pause) takes="a second" inputs=(images/mkimage.py images/pause/main.go $([ ! -x /bin/busybox ] || echo /bin/busybox)) ;;
  *) sed -n '2,11s/^# \{0,1\}//p' "$0" >&2; exit 2 ;;
esac
command -v go >/dev/null || die "Go is missing: install Go 1.26.4 or newer and put it on PATH"
go_version=$(go env GOVERSION)
printf 'go1.26.4\n%s\n' "$go_version" | sort -CV || die "Go 1.26.4 or newer is needed, this is $go_version"

case $what in kubernetes) name=kube ;; *) name=$what ;; esac
key=$({ echo "$go_version"; cd "$HERE"; cat build.sh "${inputs[@]}"; } | sha256sum | cut -c1-12)
out=$DROVER_CACHE/$name-$key
if [ "${2:-}" != --print ] && [ ! -d "$out" ]; then
  mkdir -p "$DROVER_CACHE"
  exec 8>"$DROVER_CACHE/$name.lock"
  flock 8
  if [ ! -d "$out" ]; then # else another process built it while this one waited
    say "building $what from Go modules: about $takes the first time, seconds with a warm Go cache"
    rm -rf "$DROVER_CACHE/$name".partial
    mkdir "$DROVER_CACHE/$name".partial
    "build_$what" "$DROVER_CACHE/$name".partial
    mv "$DROVER_CACHE/$name".partial "$out"
    say "built $out"
    # Results of other pins that nobody used for a week.
    find "$DROVER_CACHE" -maxdepth 1 -name "$name-????????????" -mtime +7 -exec rm -rf {} +
  fi
fi
[ ! -d "$out" ] || touch "$out"
echo "$out"
