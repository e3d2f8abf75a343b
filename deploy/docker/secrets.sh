#!/usr/bin/env bash
# secrets.sh [DIR]: makes the secrets docker-compose.yml reads, in DIR (deploy/docker/secrets). What exists is kept, so it
# can be run again. The directory is closed to others; the files are not, because compose mounts them as they are and the
# services run as a user who is not you.
set -euo pipefail
dir=${1:-$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)/secrets}
mkdir -p "$dir"
chmod 700 "$dir"
make() { [ -s "$dir/$1" ] || { cat >"$dir/$1.partial" && mv "$dir/$1.partial" "$dir/$1"; }; }

openssl rand -hex 32 | make peer-token          # services show it to each other
openssl rand -hex 32 | make api-token           # clients show it: drover --token-file deploy/docker/secrets/api-token
openssl rand -base64 32 | make seal-key         # seals kubeconfigs at rest; lose it and clusters must be registered again
openssl rand -hex 24 | make postgres-password
echo "DATABASE_URL=postgres://drover:$(cat "$dir/postgres-password")@postgres:5432/drover" | make database.env
