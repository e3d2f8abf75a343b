#!/usr/bin/env bash
# crds.sh gateway-api|mcs-api
#
# Prints CustomResourceDefinitions of a pinned Go module, for tests on real API servers:
#   gateway-api   HTTPRoute
#   mcs-api       ServiceExport and ServiceImport
# The module is downloaded once; the sum below says that it is the one that was meant.
set -euo pipefail
PATH=$PATH:/usr/local/go/bin
export GOTOOLCHAIN=local GOWORK=off GOFLAGS=-mod=mod

case ${1:-} in
  gateway-api) version=v1.4.0 sum=h1:ZwlNM6zOHq0h3WUX2gfByPs2yAEsy/EenYJB78jpQfQ= files=config/crd/standard/gateway.networking.k8s.io_httproutes.yaml ;;
  mcs-api) version=v0.3.0 sum=h1:LjRvgzjMrvO1904GP6XBJSnIX221DJMyQlZOYt9LAnM= files=config/crd/multicluster.x-k8s.io_service*.yaml ;;
  *) sed -n '2,/^set/{/^#/s/^# \{0,1\}//p}' "$0" >&2; exit 2 ;;
esac

cd / # outside any Go module
known=$(go mod download -json "sigs.k8s.io/$1@$version")
field() { sed -n "s/^\t\"$1\": \"\(.*\)\",\{0,1\}$/\1/p" <<<"$known"; }
[ "$(field Sum)" = "$sum" ] || { echo "sigs.k8s.io/$1@$version has the sum $(field Sum) instead of $sum" >&2; exit 1; }
for file in "$(field Dir)"/$files; do
  cat "$file"
  echo ---
done
