#!/usr/bin/env bash
# digests.sh [--print]: asks Docker Hub which image each tag in Dockerfile and docker-compose.yml names now, and writes those digests into
# the two files; --print only prints them. Where the registry cannot be asked it says so, changes nothing, and fails.
#
# An image is named by tag and digest: the digest decides, the tag says what it is. Run this when one of the images has been built anew (for
# Debian's and Postgres' security updates), look at the difference, run `make test`, and commit it.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
files=(deploy/docker/Dockerfile docker-compose.yml)
index='application/vnd.oci.image.index.v1+json,application/vnd.docker.distribution.manifest.list.v2+json'
ask() { curl --silent --show-error --fail --max-time 30 "$@"; }

for image in $(grep -ohE '[a-z]+:[a-z0-9.-]+@sha256:[0-9a-f]{64}' "${files[@]}" | sort -u); do
  tagged=${image%@*}
  repository=library/${tagged%:*} tag=${tagged#*:}
  token=$(ask "https://auth.docker.io/token?service=registry.docker.io&scope=repository:$repository:pull" | sed 's/.*"token":"\([^"]*\)".*/\1/') ||
    { echo "digests: the registry does not answer; nothing is changed" >&2; exit 1; }
  digest=$(ask --head -H "Authorization: Bearer $token" -H "Accept: $index" "https://registry-1.docker.io/v2/$repository/manifests/$tag" |
    tr -d '\r' | sed -n 's/^docker-content-digest: *//Ip')
  [[ $digest =~ ^sha256:[0-9a-f]{64}$ ]] || { echo "digests: the registry names no digest of $tagged; nothing more is changed" >&2; exit 1; }
  echo "$tagged@$digest"
  [ "${1:-}" = --print ] || sed -i "s|$tagged@sha256:[0-9a-f]\{64\}|$tagged@$digest|" "${files[@]}"
done
