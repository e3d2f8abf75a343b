#!/usr/bin/env bash
# setup.sh [demo|local|test|real|containers|long]...
#
# Installs the packages that a bare Debian 12 (or Ubuntu) with Rust and Go lacks. As root it prints their names and runs apt-get; as
# another user it prints the command for root and fails. If nothing is missing, it takes no time and prints nothing. Kubernetes and
# helm are not packages: local-kube builds them.
#   demo   builds, and `make demo` with simulated clusters      local  the same with real control planes (needs Go)
#   test   `make test` (the default); includes local            real   real kubelets as well; includes local
#   containers  docker-compose with podman as its engine (deploy/docker/engine.sh)
#   long   what only `make test-long` needs
set -euo pipefail

die() { echo "setup: $*" >&2; exit 1; }

# have PROGRAM: whether it is on PATH, in root's directories, or (Postgres) in Debian's own directory; an absolute path is tested as it is
have() {
  case $1 in
    /*) [ -e "$1" ] ;;
    venv) python3 -c 'import ensurepip' 2>&1 ;;
    initdb) command -v initdb || compgen -G '/usr/lib/postgresql/*/bin/initdb' ;;
    *) PATH=$PATH:/usr/sbin:/sbin command -v "$1" ;;
  esac >/dev/null
}

# program=package
DEMO="cc=gcc /usr/include/stdio.h=libc6-dev git=git make=make initdb=postgresql openssl=openssl curl=curl setsid=util-linux flock=util-linux
  runuser=util-linux ps=procps awk=mawk /etc/ssl/certs/ca-certificates.crt=ca-certificates"
TEST="$DEMO chromium=chromium chromedriver=chromium-driver docker-compose=docker-compose npm=npm python3=python3 venv=python3-venv"
REAL="$DEMO containerd=containerd runc=runc /usr/lib/cni/bridge=containernetworking-plugins nft=nftables iptables=iptables ip=iproute2
  sysctl=procps nsenter=util-linux pgrep=procps python3=python3 /bin/busybox=busybox-static"
CONTAINERS="podman=podman buildah=buildah /usr/lib/podman/netavark=netavark /usr/lib/podman/aardvark-dns=aardvark-dns runc=runc
  docker-compose=docker-compose mmdebstrap=mmdebstrap iptables=iptables flock=util-linux"
LONG="prometheus=prometheus"

wanted=
for group in "${@:-test}"; do
  # Tests with containers need root. Other users skip them and need no packages for them.
  case $group in demo | local) wanted+=" $DEMO" ;; test) wanted+=" $TEST"; [ "$(id -u)" != 0 ] || wanted+=" $REAL $CONTAINERS" ;; real) wanted+=" $REAL" ;; containers) wanted+=" $CONTAINERS" ;; long) wanted+=" $LONG" ;; *) die "unknown group $group: demo, local, test, real, containers or long" ;; esac
done
missing=$(for pair in $wanted; do have "${pair%%=*}" || echo "${pair##*=}"; done | sort -u | tr '\n' ' ')

if [ -n "$missing" ]; then
  command -v apt-get >/dev/null || die "missing programs, by their Debian package: $missing"
  install="apt-get install -y --no-install-recommends $missing"
  [ "$(id -u)" = 0 ] || die "missing packages; have root run:  apt-get update && $install"
  echo "setup: installing $missing"
  export DEBIAN_FRONTEND=noninteractive
  log=$(mktemp)
  { apt-get update && $install; } >"$log" 2>&1 </dev/null || { tail -n 20 "$log" >&2; die "apt-get failed; all of it is in $log"; }
  rm "$log"
  for pair in $wanted; do have "${pair%%=*}" || die "${pair##*=} is installed, but ${pair%%=*} is still missing"; done
fi

# This script does not install the two toolchains.
PATH=$PATH:$HOME/.cargo/bin:/usr/local/go/bin
command -v cargo >/dev/null || die "Rust is missing: install it with rustup (https://rustup.rs); rust-toolchain.toml names the version"
case $* in
  demo | containers) ;; # simulated clusters need no Go
  *) command -v go >/dev/null || die "Go is missing: Kubernetes and helm are built with Go 1.26.8 or newer (https://go.dev/dl)" ;;
esac
