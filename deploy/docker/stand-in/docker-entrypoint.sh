#!/usr/bin/env bash
# What docker-compose.yml relies on of the start script of the image postgres:15-bookworm: POSTGRES_USER, POSTGRES_DB,
# POSTGRES_PASSWORD_FILE, PGDATA on a volume, and scripts in /docker-entrypoint-initdb.d that run once, when the database is new.
set -euo pipefail
: "${POSTGRES_USER:=postgres}" "${POSTGRES_DB:=$POSTGRES_USER}"
export POSTGRES_USER POSTGRES_DB
if [ "$(id -u)" = 0 ]; then
  mkdir -p "$PGDATA" /var/run/postgresql
  chown -R postgres: "$PGDATA" /var/run/postgresql
  chmod 700 "$PGDATA"
  exec setpriv --reuid postgres --regid postgres --init-groups "$0" "$@"
fi
if [ ! -s "$PGDATA/PG_VERSION" ]; then
  initdb --username "$POSTGRES_USER" --pwfile "$POSTGRES_PASSWORD_FILE" --auth-local trust --auth-host scram-sha-256 --encoding UTF8 --locale C.UTF-8 >/dev/null
  echo 'host all all all scram-sha-256' >>"$PGDATA/pg_hba.conf"
  pg_ctl --wait --options "-c listen_addresses='' -p 5432" start # only through its socket until everything is there
  [ "$POSTGRES_DB" = postgres ] || psql --username "$POSTGRES_USER" --dbname postgres --quiet -v ON_ERROR_STOP=1 -c "create database \"$POSTGRES_DB\""
  for script in /docker-entrypoint-initdb.d/*.sh; do
    [ ! -e "$script" ] || if [ -x "$script" ]; then "$script"; else . "$script"; fi
  done
  pg_ctl --mode fast --wait stop
fi
exec "$@" -c listen_addresses='*'
