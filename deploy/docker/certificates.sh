#!/usr/bin/env bash
# certificates.sh DIR [NAME...]: a certificate authority for one Drover, and a certificate for each of its services, in DIR. What exists is
# kept, so the script can be run again; to renew a certificate, delete its two files first (services read them again, without a restart).
# A service is known to the others by its name in its certificate. The gateway's is also valid for localhost and for each NAME, by which
# browsers and the command line reach it.
set -euo pipefail
dir=$1
shift
key() { openssl genpkey -quiet -algorithm EC -pkeyopt ec_paramgen_curve:P-256 2>/dev/null || openssl genpkey -algorithm EC -pkeyopt ec_paramgen_curve:P-256; }

if [ ! -s "$dir/ca.pem" ]; then
  key >"$dir/ca.key.partial" 2>/dev/null
  chmod 600 "$dir/ca.key.partial"
  openssl req -x509 -key "$dir/ca.key.partial" -days 3650 -subj "/CN=Drover services" -addext basicConstraints=critical,CA:TRUE \
    -addext keyUsage=critical,keyCertSign,cRLSign -out "$dir/ca.pem.partial"
  mv "$dir/ca.key.partial" "$dir/ca.key"
  mv "$dir/ca.pem.partial" "$dir/ca.pem"
fi
for service in gateway cluster-manager orchestrator placement migration resource-synchronizer traffic; do
  [ ! -s "$dir/$service.pem" ] || continue
  names=DNS:$service
  if [ "$service" = gateway ]; then
    names+=,DNS:localhost,IP:127.0.0.1,IP:::1
    for name in "$@"; do names+=,DNS:$name; done
  fi
  key >"$dir/$service.key.partial" 2>/dev/null
  openssl req -new -key "$dir/$service.key.partial" -subj "/CN=$service" |
    openssl x509 -req -CA "$dir/ca.pem" -CAkey "$dir/ca.key" -CAcreateserial -days 825 -out "$dir/$service.pem.partial" \
      -extfile <(printf 'subjectAltName=%s\nbasicConstraints=CA:FALSE\nextendedKeyUsage=serverAuth,clientAuth\n' "$names") 2>/dev/null
  mv "$dir/$service.key.partial" "$dir/$service.key"
  mv "$dir/$service.pem.partial" "$dir/$service.pem"
done
