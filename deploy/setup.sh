#!/usr/bin/env bash
# setup.sh [demo|local|test|real|long]...
#
# Installs what a bare Debian 12 (or Ubuntu) with Rust and Go lacks: by apt as root, saying what first; as a user it prints the
# command for root and fails. Quick and silent when all is there. Kubernetes and helm are no packages: local-kube builds them.
#   demo   building, and `make demo` with simulated members     local  the same with real control planes (Go)
#   test   `make test`, the default; includes local             real   real kubelets too; includes local
#   long   what only `make test-long` needs
set -euo pipefail

die() { echo "setup: $*" >&2; exit 1; }

# have PROGRAM: on PATH, where root's programs are, or where Debian hides Postgres; a path is looked for as it is
have() {
  case $1 in
    /*) [ -e "$1" ] ;;
    initdb) command -v initdb || compgen -G '/usr/lib/postgresql/*/bin/initdb' ;;
    *) PATH=$PATH:/usr/sbin:/sbin command -v "$1" ;;
  esac >/dev/null
}

# program=package
DEMO="cc=gcc /usr/include/stdio.h=libc6-dev git=git make=make initdb=postgresql openssl=openssl curl=curl setsid=util-linux flock=util-linux
  runuser=util-linux ps=procps awk=mawk /etc/ssl/certs/ca-certificates.crt=ca-certificates"
TEST="$DEMO chromium=chromium docker-compose=docker-compose"
REAL="$DEMO containerd=containerd runc=runc /usr/lib/cni/bridge=containernetworking-plugins nft=nftables iptables=iptables ip=iproute2
  sysctl=procps nsenter=util-linux pgrep=procps python3=python3 /bin/busybox=busybox-static"
LONG="prometheus=prometheus"

wanted=
for group in "${@:-test}"; do
  # Tests with real containers need root: for others they are skipped, and so are their packages.
  case $group in demo | local) wanted+=" $DEMO" ;; test) wanted+=" $TEST"; [ "$(id -u)" != 0 ] || wanted+=" $REAL" ;; real) wanted+=" $REAL" ;; long) wanted+=" $LONG" ;; *) die "unknown group $group: demo, local, test, real or long" ;; esac
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

# The two toolchains are not ours to install.
PATH=$PATH:$HOME/.cargo/bin:/usr/local/go/bin
command -v cargo >/dev/null || die "Rust is missing: install it with rustup (https://rustup.rs); rust-toolchain.toml names the version"
case $* in
  demo) ;; # simulated members need no Go
  *) command -v go >/dev/null || die "Go is missing: Kubernetes and helm are built with Go 1.26.4 or newer (https://go.dev/dl)" ;;
esac
