"""A valid document of every kind, parents first: (collection, document). The names say what each stands for.

`tour.py` writes each of them, reads it back and deletes it; the examples of the API document come from that."""

import base64
import gzip
import io
import tarfile

PROJECT = "/v2/projects/tour"
APPLICATION = f"{PROJECT}/composite-apps/shop/v1"
GROUP = f"{APPLICATION}/deployment-intent-groups/run"
CLOUD = f"{PROJECT}/logical-clouds/all"
PROVIDER = "/v2/cluster-providers/tour-cloud"

MANIFEST = """apiVersion: apps/v1
kind: Deployment
metadata: {name: NAME}
spec:
  replicas: 2
  strategy: {rollingUpdate: {maxSurge: 0, maxUnavailable: 1}}
  selector: {matchLabels: {app: NAME}}
  template:
    metadata: {labels: {app: NAME}}
    spec:
      containers: [{name: c, image: registry.example/app, resources: {requests: {cpu: 1500m, memory: 64Mi}}}]
"""


# Takes long enough to become ready for an operator to say something meanwhile.
UNHURRIED = MANIFEST.replace("labels: {app: NAME}}", 'labels: {app: NAME}, annotations: {kit/start-delay: "8s", kit/start-delay-max: "8s"}}')
# It becomes ready after ten minutes, so that there is time to cancel it.
SLOW = MANIFEST.replace("labels: {app: NAME}}", 'labels: {app: NAME}, annotations: {kit/start-delay: "600s", kit/start-delay-max: "600s"}}').replace("1500m", "100m")


def base64_of(content):
    """Text or bytes in base64."""
    return base64.b64encode(content.encode() if isinstance(content, str) else content).decode()


def profile():
    """A profile for a chart: an archive with a manifest and the values that it names."""
    files = {
        "manifest.yaml": "version: v1\ntype:\n  values: override_values.yaml\n",
        "override_values.yaml": "replicas: 3\n",
    }
    archive = io.BytesIO()
    with gzip.GzipFile(fileobj=archive, mode="wb", mtime=0) as packed, tarfile.open(fileobj=packed, mode="w") as tar:
        for name, text in files.items():
            entry = tarfile.TarInfo(name)
            entry.size = len(text)
            tar.addfile(entry, io.BytesIO(text.encode()))
    return base64_of(archive.getvalue())


def named(name, spec=None, **more):
    """A document."""
    return {"metadata": {"name": name, "description": f"The {name} of the tour"}, **({"spec": spec} if spec is not None else {}), **more}


AGENT = {"version": "0.1.0", "image": "drover", "on": [{"provider": "nowhere"}], "except": [], "settings": {"AUTOSCALER_LOG": "info"}, "members": {},
         "podAnnotations": {}, "healthySeconds": 10, "paused": False}
CONTROLLER = {"host": "controller.example", "port": 9041, "type": "action", "priority": 1}


def documents(kubeconfig):
    """All of them; the kubeconfig is that of the cluster of the tour."""
    cluster, generic, hpa = f"{PROVIDER}/clusters/edge-1", f"{GROUP}/generic-k8s-intents/extra", f"{GROUP}/hpa-intents/hardware"
    inbound, chains = f"{GROUP}/traffic-group-intents/callers/inbound-intents", f"{GROUP}/network-chains/firewall"
    networks, certificates = f"{GROUP}/network-controller-intent/networks", f"{PROJECT}/ca-certs/root"
    return [
        ("/v2/cluster-providers", named("tour-cloud", {"priority": 7})),
        (f"{PROVIDER}/clusters", named("edge-1", file=base64_of(kubeconfig))),
        (f"{cluster}/labels", {"clusterLabel": "edge"}),
        (f"{cluster}/kv-pairs", named("site", {"kv": [{"city": "Berlin"}, {"rack": "12"}]})),
        (f"{cluster}/networks", named("internal", {"cniType": "ovn4nfv", "ipv4Subnets": [{"subnet": "172.16.33.0/24", "name": "subnet1"}]})),
        (f"{cluster}/provider-networks", named("uplink", {"cniType": "ovn4nfv", "providerNetType": "VLAN", "vlan": {"vlanId": 100}})),
        (f"{PROVIDER}/ca-certs", named("root", {"isCA": True, "duration": "8760h"})),
        (f"{PROVIDER}/ca-certs/root/clusters", named("edge", {"scope": "label", "label": "edge"})),
        (f"{PROVIDER}/cluster-sync-objects", named("git", {"kv": [{"userName": ""}, {"gitToken": ""}]})),
        ("/v2/agents", named("autoscaler", AGENT)),
        ("/v2/clm-controllers", named("inventory", {"host": "controller.example", "port": 9041, "priority": 1})),
        ("/v2/controllers", named("placer", CONTROLLER)),
        ("/v2/dtc-controllers", named("mesh", CONTROLLER)),
        ("/v2/projects", named("tour", {"whenFull": "overflow", "packing": "spread"})),
        (f"{PROJECT}/logical-clouds", named("all", {"level": "0", "namespace": "default", "labels": None, "user": {"userName": "", "type": ""}})),
        (f"{CLOUD}/cluster-references", named("edge-1", {"clusterProvider": "tour-cloud", "cluster": "edge-1"})),
        (f"{CLOUD}/kv-pairs", named("owner", {"kv": [{"team": "payments"}]})),
        (f"{CLOUD}/user-permissions", named("reader", {"namespace": "default", "apiGroups": ["", "apps"], "resources": ["pods"], "verbs": ["get", "list"]})),
        (
            f"{PROJECT}/logical-clouds",
            named("tenant", {"level": "1", "namespace": "tour-tenant", "labels": None, "user": {"userName": "ann", "type": "certificate"}}),
        ),
        (f"{PROJECT}/logical-clouds/tenant/cluster-quotas", named("limit", {"limits.cpu": "400", "count/jobs.batch": "7"})),
        (certificates.rsplit("/", 1)[0], named("root", {"isCA": True})),
        (f"{certificates}/logical-clouds", named("all", {"logicalCloud": "all"})),
        (f"{certificates}/logical-clouds/all/clusters", named("edge", {"clusterProvider": "tour-cloud", "cluster": "edge-1"})),
        (f"{PROJECT}/composite-apps", named("shop", {"compositeAppVersion": "v1"})),
        (f"{APPLICATION}/apps", named("web", file=base64_of(MANIFEST.replace("NAME", "web")))),
        (f"{APPLICATION}/apps", named("db", file=base64_of(MANIFEST.replace("NAME", "db")))),
        (f"{APPLICATION}/apps/web/dependency", named("after-db", {"app": "db", "opStatus": "Ready", "wait": 5})),
        (f"{APPLICATION}/call-graphs", named("calls", {"calls": [{"from": "web", "to": "db", "calls": 3.0, "bytes": 2048.0}], "confidence": 0.5})),
        (f"{APPLICATION}/composite-profiles", named("production")),
        (f"{APPLICATION}/composite-profiles/production/profiles", named("web", {"app": "web"}, file=profile())),
        (
            f"{APPLICATION}/deployment-intent-groups",
            named("run", {"compositeProfile": "production", "version": "r1", "logicalCloud": "all", "overrideValues": [{"app": "web", "values": {"color": "green"}}]}),
        ),
        (f"{GROUP}/routes", named("web", {"app": "web", "service": "web", "servicePort": 80, "host": "shop.example", "port": 18080})),
        (f"{GROUP}/generic-placement-intents", named("placement")),
        (
            f"{GROUP}/generic-placement-intents/placement/app-intents",
            named("web", {"app": "web", "intent": {"anyOf": [{"clusterProvider": "tour-cloud", "cluster": "edge-1"}]}, "whenFull": "preferred"}),
        ),
        (f"{GROUP}/intents", named("used", {"intent": {"genericPlacementIntent": "placement"}})),
        (f"{GROUP}/migration-intents", named("moves")),
        (f"{GROUP}/migration-intents/moves/app-intents", named("web", {"app": "web", "migration": True, "priority": 3})),
        ("/v2/migration-parameters", named("cheap", {"source": "constant", "scope": "app", "value": 3.0})),
        ("/v2/migration-algorithms", named("Cheapest", {"expression": "cheap * 2", "prefer": "low", "missing": "first"})),
        (
            f"{PROJECT}/migration-policies",
            named("cheapest-first", {"mode": "order", "algorithms": [{"algorithm": "Cheapest"}], "cascadeDepth": 0, "active": False}),
        ),
        (f"{GROUP}/generic-k8s-intents", named("extra")),
        (
            f"{generic}/resources",
            named("settings", {"app": "web", "newObject": "true", "resourceGVK": {"apiVersion": "v1", "kind": "ConfigMap", "name": "settings"}}),
        ),
        (
            f"{generic}/resources/settings/customizations",
            named("data", {"clusterSpecific": "false"}, files=[{"name": "a.properties", "content": base64_of("x=1\n")}]),
        ),
        (f"{GROUP}/traffic-group-intents", named("callers")),
        (inbound, named("web", {"app": "web", "appLabel": "app=web", "serviceName": "web", "port": 8080, "protocol": "TCP"})),
        (f"{inbound}/web/clients", named("office", {"app": "web", "appLabel": "app=client", "serviceName": "client", "namespaces": [], "cidrs": ["10.0.0.0/8"]})),
        (f"{inbound}/web/clients/office/access-points", named("read", {"action": "ALLOW", "url": ["/catalogue"], "access": ["GET"]})),
        (f"{GROUP}/hpa-intents", named("hardware", {"app": "web"})),
        (f"{hpa}/hpa-resource-consumers", named("server", {"name": "web", "kind": "Deployment", "apiVersion": "apps/v1", "replicas": 1, "container": "c"})),
        (
            f"{hpa}/hpa-resource-consumers/server/resource-requirements",
            named("cores", {"allocatable": True, "mandatory": True, "weight": 1, "resource": {"name": "cpu", "requests": 2, "limits": 2}}),
        ),
        (f"{GROUP}/network-controller-intent", named("networks")),
        (f"{networks}/workload-intents", named("web", {"application": "web", "workloadResource": "web", "type": "Deployment"})),
        (f"{networks}/workload-intents/web/interfaces", named("uplink", {"interface": "net0", "name": "uplink", "defaultGateway": "false"})),
        (f"{GROUP}/network-chains", named("firewall", {"chainType": "Routing", "namespace": "default"})),
        (f"{chains}/links", named("first", {"leftNet": "net0", "rightNet": "net1", "networkFunction": "app=firewall"})),
        (f"{chains}/client-selectors", named("left", {"chainEnd": "left", "podSelector": {"matchLabels": {"app": "web"}}})),
        (f"{chains}/provider-networks", named("right", {"chainEnd": "right", "networkName": "uplink"})),
        (f"{GROUP}/sfc-clients", named("web", {"chainEnd": "left", "chainName": "firewall", "appName": "web", "workloadResource": "web"})),
        (f"{GROUP}/temporal-action-controller", named("before", {"hookType": "pre-install"})),
        (f"{GROUP}/temporal-action-controller/before/workers", named("runner", {"startToCloseTimeout": 100})),
        (f"{GROUP}/temporal-workflow-intents", named("copy", {"workflowClient": {"clientEndpointName": "temporal.example"}})),
        (f"{GROUP}/policy-intents", named("hot", {"policyId": "hot", "event": "cpu"})),
    ]
