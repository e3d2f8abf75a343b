#!/usr/bin/env bash
# image.sh PROGRAMS HELM [NAME]: builds the last stage of the Dockerfile with podman from programs that are built already, without the
# stages that compile. PROGRAMS is a directory of cargo's (target/debug), HELM the program helm, NAME the image (drover:dev).
#
# Programs that are not static, as cargo builds them by default, get the C library beside them; the Dockerfile's own are static.
set -euo pipefail
top=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
programs=$1 helm=$2 name=docker.io/library/${3:-drover:dev}
context=$(mktemp -d)
trap 'rm -rf "$context"' EXIT
mkdir -p "$context/drover/out" "$context/drover/libraries" "$context/helm"
for program in drover drover-{gateway,cluster-manager,orchestrator,placement,migration,resource-synchronizer,traffic}; do
  strip -o "$context/drover/out/$program" "$programs/$program"
done
for library in $(ldd "$context/drover/out/"* | grep -o '/[^ ]*' | grep '\.so' | sort -u); do
  cp --parents --dereference "$library" "$context/drover/libraries"
done
cp "$helm" "$context/helm/helm"
{
  sed -n '/^FROM debian/,$p' "$top/deploy/docker/Dockerfile" | sed '/^FROM/s/@sha256:[0-9a-f]*//' # stand-ins have other digests
  [ -z "$(ls "$context/drover/libraries")" ] || echo "COPY --from=drover /libraries/ /"
} >"$context/Dockerfile"
podman build --isolation chroot --build-context "drover=$context/drover" --build-context "helm=$context/helm" --file "$context/Dockerfile" \
  --tag "$name" "$context"
