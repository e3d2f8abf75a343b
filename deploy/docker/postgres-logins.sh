#!/bin/bash
# postgres-logins.sh: a login and a schema for each service, so that none can read another's tables. The Postgres image runs it once, when
# the database is new. It can be run again: docker-compose exec postgres /docker-entrypoint-initdb.d/logins.sh
set -euo pipefail
for service in gateway cluster_manager orchestrator placement migration resource_synchronizer; do
  role=drover_$service
  password=$(cat "${SECRETS_DIR:-/run/secrets}/postgres-${service//_/-}")
  psql -v ON_ERROR_STOP=1 -v role="$role" -v password="$password" --username "$POSTGRES_USER" --dbname "$POSTGRES_DB" --quiet <<'SQL'
select format('create role %I', :'role') where not exists (select from pg_roles where rolname = :'role') \gexec
alter role :"role" login nosuperuser nocreatedb nocreaterole noinherit password :'password';
create schema if not exists :"role" authorization :"role";
SQL
done
psql -v ON_ERROR_STOP=1 -v db="$POSTGRES_DB" --username "$POSTGRES_USER" --dbname "$POSTGRES_DB" --quiet <<'SQL'
revoke all on database :"db" from public;
revoke all on schema public from public;
select format('grant connect on database %I to %I', :'db', rolname) from pg_roles where rolname like 'drover\_%' \gexec
SQL
