#!/usr/bin/env bash
# check.sh: checks of the containers that need no container engine: docker-compose accepts the file; only the gateway and
# a port of the data path are published, on loopback; each service runs a program of this workspace as an unprivileged user and has a health check; the code reads each
# DROVER_ setting; the scripts of deploy/ parse.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
for script in deploy/*.sh deploy/*/*.sh deploy/*/*/*.sh .ci/run; do bash -n "$script"; done

secrets=$(mktemp -d)
trap 'rm -rf "$secrets"' EXIT
deploy/docker/secrets.sh "$secrets"
DROVER_SECRETS=$secrets docker-compose config >"$secrets/config.yml"
# Debian's docker-compose is a Python program, so the system's Python has the module yaml.
/usr/bin/python3 - "$secrets/config.yml" <<'P'
import glob, re, sys, yaml

pinned = re.compile(r"@sha256:[0-9a-f]{64}$")
stages = re.findall(r"^FROM (\S+)", open("deploy/docker/Dockerfile").read(), re.M)
unpinned = [f"Dockerfile: FROM {image} has no digest" for image in stages if image != "scratch" and not pinned.search(image)]
services = yaml.safe_load(open(sys.argv[1]))["services"]
faults = unpinned

def code(service):
    return "".join(open(f).read() for room in ("libs/*", f"services/{service}") for f in glob.glob(room + "/src/**/*.rs", recursive=True))

for name, service in services.items():
    if "healthcheck" not in service:
        faults.append(f"{name}: no health check")
    ports = [str(p.get("published") if isinstance(p, dict) else p) for p in service.get("ports", [])]
    if ports and (name not in ("gateway", "traffic") or not all(p.startswith("127.0.0.1:") for p in ports)):
        faults.append(f"{name}: published as {ports}")
    if name == "postgres":
        if not pinned.search(service["image"]):
            faults.append(f"{name}: its image has no digest")
        continue
    if service.get("user") != "65532:65532" or not service.get("read_only"):
        faults.append(f"{name}: not an unprivileged user on a read-only root")
    if service["entrypoint"] != [f"/bin/drover-{name}"] or not glob.glob(f"services/{name}/src/main.rs"):
        faults.append(f"{name}: runs {service['entrypoint']}, which the workspace does not build")
    for setting in service["environment"]:
        if setting.startswith("DROVER_") and f'"{setting}"' not in code(name):
            faults.append(f"{name}: no code reads {setting}")
    for needed in re.findall(r"/run/secrets/([a-z-]+)", str(service["environment"])):
        if needed not in [s["source"] if isinstance(s, dict) else s for s in service.get("secrets", [])]:
            faults.append(f"{name}: secret {needed} is not mounted")
if set(services) != {"gateway", "cluster-manager", "orchestrator", "placement", "migration", "resource-synchronizer", "traffic", "postgres"}:
    faults.append(f"services: {sorted(services)}")
print("\n".join(faults) or f"docker-compose.yml: {len(services)} services, accepted")
sys.exit(bool(faults))
P
