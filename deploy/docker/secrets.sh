#!/usr/bin/env bash
# secrets.sh [DIR]: creates the secrets and certificates that docker-compose.yml reads, in DIR (default deploy/docker/secrets). Existing secrets are
# kept, so the script can be run again. Only the owner can enter the directory. The files are readable, because compose mounts them with
# their permissions and the services run as another user.
set -euo pipefail
dir=${1:-$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)/secrets}
mkdir -p "$dir"
chmod 700 "$dir"
make() { [ -s "$dir/$1" ] || { cat >"$dir/$1.partial" && mv "$dir/$1.partial" "$dir/$1"; }; }

openssl rand -hex 32 | make api-token           # clients: drover --token-file deploy/docker/secrets/api-token
openssl rand -base64 32 | make seal-key         # encrypts what cluster-manager stores; without it all clusters must be registered again
for service in gateway orchestrator resource-synchronizer; do
  openssl rand -base64 32 | make "$service-seal-key" # encrypts contents of applications; without it the service does not start
done
openssl rand -hex 24 | make postgres-password   # of the superuser; only the Postgres container has it
for service in gateway cluster-manager orchestrator placement migration resource-synchronizer; do
  openssl rand -hex 24 | make "postgres-$service"
  echo "DATABASE_URL=postgres://drover_${service//-/_}:$(cat "$dir/postgres-$service")@postgres:5432/drover" | make "$service.env"
done
"$(dirname "${BASH_SOURCE[0]}")/certificates.sh" "$dir" # of the services, by which they know each other
chmod a+r "$dir"/*.key
chmod 600 "$dir/ca.key"
