#!/usr/bin/env python3
"""tour.py URL KUBECONFIGS [--record FILE | --check FILE]: every public operation of a running Drover, with answers as its document says.

First the documents: each kind of samples.py is written, read back exactly, written again as it was read without any difference, and deleted.
A dry run of each write leaves nothing, a write with an old ETag is refused (412), and so is what exists or does not exist. Then a story
with applications that run and move, for everything else. The Drover must be empty, without a token, and have simulated clusters, whose
kubeconfigs are in the folder KUBECONFIGS. --record writes the requests and answers, which become the examples of the API document
(cargo run -p xtask -- public); --check fails if an operation, a status or an error code of this run has none there, or the other way round.
What a Drover answers of which a part is broken is recorded elsewhere at the same time: --faults waits for the file of these exchanges."""

import argparse
import copy
import http.client
import json
import pathlib
import ssl
import subprocess
import sys
import tempfile
import time
import urllib.parse

import samples
from samples import named

# Operations that have no success here: EMCO's verbs that are not carried out (501), a verb that no state of a logical cloud of level 0
# allows, kubeconfigs of users, for which simulated clusters sign no certificates, and logs and programs, which simulated pods do not have.
NEVER = {
    "cluster_networks_apply",
    "cluster_networks_stop",
    "cluster_networks_terminate",
    "cluster-reference_kubeconfig",
    "logical-cloud_stop",
    "copy_log",
    "copy_exec",
}


BEGAN = time.monotonic()


def tell(text):
    """Prints how far this is, and after how many seconds."""
    print(f"{time.monotonic() - BEGAN:4.0f} s  {text}")


class Hub:
    """Sends requests, checks that the document knows the answer, and keeps one exchange for each operation, status and error code."""

    def __init__(self, url):
        at = urllib.parse.urlsplit(url)
        self.host, self.port = at.hostname, at.port
        self.document = json.loads(self.raw("GET", "/openapi.json")[2])
        self.seen = {}

    def raw(self, method, path, body=None, headers=None, stream=False):
        connection = http.client.HTTPConnection(self.host, self.port, timeout=80)
        try:
            connection.request(method, path, body=body, headers=headers or {})
            answer = connection.getresponse()
            if stream and answer.status == 200:
                lines = iter(answer.readline, b"\n")
                return answer.status, dict(answer.getheaders()), b"".join(lines)
            return answer.status, dict(answer.getheaders()), answer.read()
        finally:
            connection.close()

    def operation(self, method, path):
        """The operation of the document for this path: of those that fit, the one with the fewest parameters."""

        def fits(template):
            wanted, found = template.split("/"), path.split("/")
            return len(wanted) == len(found) and all(w == f or (w.startswith("{") and f) for w, f in zip(wanted, found))

        at = [t for t, item in self.document["paths"].items() if method.lower() in item and fits(t)]
        if not at:
            raise SystemExit(f"{method} {path} is not in the document")
        return self.document["paths"][min(at, key=lambda t: t.count("{"))][method.lower()]

    def call(self, method, path, body=None, status=None, code=None, headers=None, content=None, stream=False, record=True):
        """The answer's JSON and headers. `status` and `code` are what is wanted; a success unless they say something else."""
        sent = dict(headers or {})
        payload = content
        if body is not None:
            sent.setdefault("Content-Type", "application/json")
            payload = json.dumps(body)
        got, received, text = self.raw(method, path, payload, sent, stream)
        plain = path.split("?")[0]
        operation = self.operation(method, plain)
        received = {name.lower(): value for name, value in received.items()}
        kind = received.get("content-type", "").split(";")[0]
        if kind == "text/event-stream":  # The example is what an event tells.
            text = next(line for line in text.splitlines() if line.startswith(b"data:"))[5:]
        value = json.loads(text) if kind in ("text/event-stream", "application/json", "application/problem+json") and text else text.decode(errors="replace")
        good = got == status if status else (got < 300 if code is None else got >= 400)
        if not good or (code and value["code"] != code):
            raise SystemExit(f"{method} {path} answered {got}, wanted {status or code or 'a success'}: {value}")
        if str(got) not in operation["responses"] and got < 400:
            raise SystemExit(f"{method} {path} answered {got}, which the document does not have")
        if record:
            self.keep(operation, method, path, body if content is None else None, got, kind, value, received, headers)
        return value, received

    def keep(self, operation, method, path, body, status, kind, value, received, headers):
        problem = kind == "application/problem+json"
        key = value["code"] if problem else str(status)
        answers = self.seen.setdefault(operation["operationId"], {})
        if key in answers:
            return
        exchange = {"request": f"{method} {path}"}
        if headers:
            exchange["headers"] = {name: text for name, text in headers.items() if name != "Content-Type"}
        if body is not None:
            exchange["body"] = shown(body)
        exchange["status"] = status
        if value not in ("", None):
            exchange["type"] = kind
            exchange["answer"] = shown(value)
        shown_headers = {name: received[name] for name in ("etag", "location", "warning", "link", "deprecation") if name in received}
        if shown_headers:
            exchange["answerHeaders"] = shown_headers
        answers[key] = exchange

    def gone(self, path):
        return self.call("GET", path, code="not_found", status=404)


def shown(value):
    """The value as an example shows it: without secrets, and with few of many."""
    if isinstance(value, dict):
        out = {}
        for name, inner in value.items():
            if name == "kubeconfig" and isinstance(inner, str):
                inner = "apiVersion: v1\nkind: Config\n# as kubectl uses it, with all certificates inline\n"
            elif name in ("file", "content") and isinstance(inner, str) and len(inner) > 1200:
                inner = samples.base64_of("apiVersion: v1\nkind: Config\n# shortened\n")
            elif name == "path" and isinstance(inner, str) and inner.startswith("/login?key="):
                inner = "/login?key=0123456789abcdef"
            elif name == "token" and isinstance(inner, str):
                inner = "drover_0123456789abcdef"
            out[name] = shown(inner)
        return out
    if isinstance(value, list):
        return [shown(inner) for inner in value[:2]]
    if isinstance(value, str) and len(value) > 2000:
        return value[:2000]
    return value


def until(what, holds, seconds=120):
    """Waits for a condition."""
    end = time.monotonic() + seconds
    while True:
        value = holds()
        if value:
            return value
        if time.monotonic() > end:
            raise SystemExit(f"timed out: {what}")
        time.sleep(0.25)


def said(sent, got, at=""):
    """Fails unless everything that was sent was read back with the same value."""
    if isinstance(sent, dict):
        for name, value in sent.items():
            if name in ("file", "files"):
                continue
            if name not in (got or {}):
                raise SystemExit(f"{at}.{name} was written and is not read back: {got}")
            said(value, got[name], f"{at}.{name}")
    elif sent != got:
        raise SystemExit(f"{at}: {sent!r} was written and {got!r} is read back")


def item_of(collection, document):
    name = document.get("clusterLabel") or document["metadata"]["name"]
    return f"{collection}/{name}" + (f"/{document['spec']['compositeAppVersion']}" if collection.endswith("/composite-apps") else "")


def with_puts(hub, collection, item, document):
    """Replaces a document by what was read, and by a changed one, and makes it again what it was."""
    read, headers = hub.call("GET", item)
    etag = headers.get("etag")
    old = {"If-Match": '"0"'}
    changed = copy.deepcopy(read)
    if "metadata" in changed:
        changed["metadata"]["description"] = "Changed"
    hub.call("PUT", f"{item}?dryRun=All", changed, record=False)
    if hub.call("GET", item, record=False)[0] != read:
        raise SystemExit(f"a dry run of PUT changed {item}")
    if takes(hub, "PUT", item, "If-Match"):
        hub.call("PUT", item, changed, code="precondition_failed", status=412, headers=old)
    if "metadata" in changed:
        hub.call("PUT", item, {**changed, "metadata": {**changed["metadata"], "name": "another"}}, code="mismatched_name", status=400)
    hub.call("PUT", item, read, headers={"If-Match": etag} if etag else None)
    again = hub.call("GET", item, record=False)[0]
    if again != read:
        raise SystemExit(f"{item} was written as it was read, and differs: {read} {again}")
    if changed != read:
        hub.call("PUT", item, changed, record=False)
        said(changed, hub.call("GET", item, record=False)[0], item)
        hub.call("PUT", item, read, record=False)


def write(hub, collection, document):
    """Makes a document, and reads it back in every way."""
    item = item_of(collection, document)
    responses = hub.operation("POST", collection)["responses"]
    hub.gone(item) if has(hub, "GET", item) else None
    if "metadata" in document:
        hub.call("POST", collection, {**document, "metadata": {"name": "no name!"}}, code="invalid", status=400)
    hub.call("POST", f"{collection}?dryRun=All", document, record=False)
    hub.gone(item) if has(hub, "GET", item) else None
    made = hub.call("POST", collection, document)[0]
    said(document, made, item)
    assert "201" in responses
    hub.call("POST", collection, document, code="already_exists", status=409)
    if has(hub, "GET", item):
        read = hub.call("GET", item)[0]
        if read != made:
            raise SystemExit(f"{item}: POST answered {made} and GET answers {read}")
    if has(hub, "GET", collection):
        page = hub.call("GET", f"{collection}?limit=10000")[0]
        listed = page if isinstance(page, list) else next(iter(page.values()))
        if not listed:
            raise SystemExit(f"{collection} does not list {item}")
    if has(hub, "PUT", item):
        with_puts(hub, collection, item, document)


def has(hub, method, path):
    try:
        hub.operation(method, path)
        return True
    except SystemExit:
        return False


def unwrite(hub, collection, document, children):
    """Deletes a document, after everything that must not delete it."""
    item = item_of(collection, document)
    if not children:
        hub.call("DELETE", f"{item}?dryRun=All", record=False)
        hub.call("GET", item, record=False) if has(hub, "GET", item) else None
    if takes(hub, "DELETE", item, "If-Match"):
        hub.call("DELETE", item, headers={"If-Match": '"0"'}, code="precondition_failed", status=412)
    if children:
        hub.call("DELETE", item, status=409)
        return
    hub.call("DELETE", item)
    hub.call("DELETE", item, status=404)
    if has(hub, "PUT", item) and {"200", "201"} <= set(hub.operation("PUT", item)["responses"]):
        hub.call("PUT", item, document, status=201)
        hub.call("DELETE", item)


def documents(hub, kubeconfig):
    """Every kind of document."""
    every = samples.documents(kubeconfig)
    for collection, document in every:
        write(hub, collection, document)
    # What others are below or refer to stays.
    for collection, document in every:
        item = item_of(collection, document)
        if any(below.startswith(item + "/") for below, _ in every):
            unwrite(hub, collection, document, children=True)
    for collection, document in reversed(every):
        unwrite(hub, collection, document, children=False)
    kinds = {path for path, item in hub.document["paths"].items() if item.get("post", {}).get("operationId", "").endswith("_create")}
    covered = {t for t in kinds for collection, _ in every if hub.operation("POST", collection) is hub.document["paths"][t]["post"]}
    left = {hub.document["paths"][t]["post"]["operationId"] for t in kinds - covered} - {"plan_create", "login_link_create", "token_create"}
    if left:
        raise SystemExit(f"samples.py has no document for {sorted(left)}")
    tell(f"documents: {len(every)} were written, read back, replaced, and deleted")


def ask(invitation):
    """Asks for a certificate with a key of its own, as the agent of a cluster does; the connection on which the answer comes."""
    with tempfile.TemporaryDirectory() as folder:
        key = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-keyout", f"{folder}/key"]
        made = subprocess.run(["openssl", "req", "-new", "-subj", "/CN=agent", *key], check=True, capture_output=True, text=True)
    trust = ssl.create_default_context(cadata=invitation["authority"])
    trust.check_hostname = False  # The name in the certificate is the same wherever Drover is.
    host, port = invitation["hub"].rsplit(":", 1)
    connection = http.client.HTTPSConnection(host, int(port), context=trust, timeout=60)
    body = json.dumps({"token": invitation["token"], "request": made.stdout})
    connection.request("POST", "/v1/enrol", body, {"Content-Type": "application/json"})
    return connection


class Story:
    """Applications on three clusters."""

    CLUSTERS = [("onprem", 1, "private-a"), ("onprem", 1, "private-b"), ("aws", 5, "public-c")]
    CLOUD = "/v2/projects/shop/logical-clouds/all"

    def __init__(self, hub, kubeconfigs):
        self.hub, self.kubeconfigs = hub, kubeconfigs

    def post(self, path, body=None, **wanted):
        return self.hub.call("POST", path, body, **wanted)

    def get(self, path, **wanted):
        return self.hub.call("GET", path, **wanted)[0]

    def finished(self, answered, state="succeeded"):
        """The operation that an answer started, at its end."""
        at = answered[1]["location"]
        operation = until("the operation ends", lambda: (o := self.get(f"{at}?wait=30s"))["state"] not in ("running", "undoing") and o)
        if operation["state"] != state:
            raise SystemExit(f"{operation['kind']} {operation['state']}: {operation.get('message')} {operation.get('reasons')}")
        return operation

    def register(self):
        for provider, priority in sorted({(p, n) for p, n, _ in self.CLUSTERS}):
            self.post("/v2/cluster-providers", named(provider, {"priority": priority}))
        for (provider, _, cluster), file in zip(self.CLUSTERS, self.kubeconfigs):
            self.post("/v2/cluster-checks", {"kubeconfig": file.read_text()})
            self.post(f"/v2/cluster-providers/{provider}/clusters", named(cluster, file=samples.base64_of(file.read_bytes())))
        self.post("/v2/cluster-checks", {"kubeconfig": "none"}, status=None, code="kubeconfig_invalid")
        ready = lambda: sum(c["state"] == "Ready" and len(c["nodes"]) > 0 for c in self.get("/v2/clusters?view=capacity")) == 3
        until("three clusters are ready", ready)

    def cloud(self):
        self.post("/v2/projects", named("shop"))
        self.post("/v2/projects/shop/logical-clouds", named("all", {"level": "0"}))
        for provider, _, cluster in self.CLUSTERS:
            self.post(f"{self.CLOUD}/cluster-references", named(cluster, {"clusterProvider": provider, "cluster": cluster}))
        for verb in ("update", "stop", "terminate"):
            self.post(f"{self.CLOUD}/{verb}", code="wrong_state", status=409)
        self.post(f"{self.CLOUD}/instantiate?dryRun=All", record=False)
        self.post(f"{self.CLOUD}/instantiate")
        self.post(f"{self.CLOUD}/instantiate", code="wrong_state", status=409)
        self.post(f"{self.CLOUD}/update")
        self.get(f"{self.CLOUD}/status")
        self.get("/v2/projects/shop/logical-clouds/none/status", code="not_found")
        reference = self.CLUSTERS[0][2]
        self.get(f"{self.CLOUD}/cluster-references/{reference}/kubeconfig", code="wrong_state", status=409)

    def group(self, name, where, movable, version="v1", manifest=samples.MANIFEST):
        """The documents of an application of two pods of 1.5 CPUs each; returns its group."""
        app, post = f"/v2/projects/shop/composite-apps/{name}/{version}", self.post
        group = f"{app}/deployment-intent-groups/run"
        post("/v2/projects/shop/composite-apps", named(name, {"compositeAppVersion": version}))
        post(f"{app}/apps", named(name, file=samples.base64_of(manifest.replace("NAME", name))))
        post(f"{app}/composite-profiles", named("profile"))
        post(f"{app}/deployment-intent-groups", named("run", {"compositeProfile": "profile", "version": name, "logicalCloud": "all", "overrideValues": []}))
        post(f"{group}/generic-placement-intents", named("placement"))
        any_of = [{"clusterProvider": p, "cluster": c} for p, _, c in self.CLUSTERS if c in where]
        post(f"{group}/generic-placement-intents/placement/app-intents", named(name, {"app": name, "intent": {"anyOf": any_of}}))
        post(f"{group}/intents", named("used", {"intent": {"genericPlacementIntent": "placement"}}))
        post(f"{group}/migration-intents", named("migration"))
        post(f"{group}/migration-intents/migration/app-intents", named(name, {"app": name, "migration": movable, "priority": 1 if movable else 10}))
        return group

    def refusals(self, group):
        """Verbs in a state that does not allow them, and of a group that does not exist."""
        none = group.replace("/run", "/none")
        for verb in ("approve", "instantiate", "update", "stop", "terminate", "test"):
            self.post(f"{none}/{verb}", code="not_found", status=404)
        for verb in ("update", "stop", "terminate", "test"):
            self.post(f"{group}/{verb}", code="wrong_state", status=409)
        self.post(f"{group}/rollback", {"spec": {"revision": "first"}}, code="invalid", status=400)
        self.post(f"{group}/migrate", {"spec": {"targetCompositeAppVersion": "v1", "targetDeploymentIntentGroup": "none"}}, status=404)
        for read in ("status", "revisions", "callers", "notes", "tests", "revisions/diff?from=1&to=2"):
            self.get(f"{none}/{read}", code="not_found", status=404)

    def deploy(self):
        post = self.post
        cart = self.cart = self.group("cart", ["private-a", "private-b", "public-c"], True)
        self.refusals(cart)
        post(f"{cart}/approve?dryRun=All")
        post(f"{cart}/approve")
        basis = post(f"{cart}/instantiate?dryRun=All")[0]["basis"]
        started, headers = post(f"{cart}/instantiate", {"basis": basis})
        assert headers["location"] == f"/v2/operations/{started['id']}", headers
        self.hub.call("GET", f"/v2/operations/{started['id']}/events", stream=True)
        self.finished((started, headers))
        post(f"{cart}/instantiate", code="wrong_state", status=409)
        ledger = self.ledger = self.group("ledger", ["private-a"], False)
        post(f"{ledger}/approve", record=False)
        wish = {"kind": "newcomer", "project": "shop", "compositeApp": "ledger", "compositeAppVersion": "v1", "deploymentIntentGroup": "run"}
        post("/v2/plans?dryRun=All", wish)
        plan = post("/v2/plans", wish)[0]
        self.get("/v2/plans")
        self.get(f"/v2/plans/{plan['id']}")
        self.hub.call("DELETE", f"/v2/plans/{plan['id']}?dryRun=All", record=False)
        assert self.get(f"/v2/plans/{plan['id']}", record=False)["state"] == "proposed"
        self.hub.call("DELETE", f"/v2/plans/{plan['id']}")
        post(f"/v2/plans/{plan['id']}/apply", code="plan_not_proposed", status=409)
        began = time.monotonic()
        answered = post(f"{ledger}/instantiate", record=False, headers={"Prefer": "wait=30"})
        waited = answered[0]["state"] == "succeeded" or time.monotonic() - began >= 30
        assert answered[1]["preference-applied"] == "wait=30" and waited, answered
        moved = self.finished(answered)
        assert [(m["app"], m["to"]) for m in moved["moves"]] == [("cart/cart", "onprem+private-b")], moved["moves"]

    def look(self):
        get, cart = self.get, self.cart
        nobody = "00000000-0000-7000-8000-000000000000"
        apps = get("/v2/apps")
        get("/v2/agent-copies")
        get("/v2/apps?project=shop", record=False)
        get("/v2/routes")
        copies = [(a["app"], b) for a in apps["items"] for b in a["bindings"]]
        binding = next(b for app, b in copies if app == "cart")
        provider, cluster = binding["member"].split("+")
        at = f"/v2/cluster-providers/{provider}/clusters/{cluster}"
        copy_path = f"{at}/copies/{binding['binding']}"
        pods = until("the pods are there", lambda: (p := get(f"{copy_path}/pods", record=False))["items"] and p)
        get(f"{copy_path}/pods")
        get(f"{copy_path}/events")
        # Simulated pods have no log.
        get(f"{copy_path}/log?pod={pods['items'][0]['name']}&container=c&tailLines=5", status=404)
        self.post(f"{copy_path}/exec?pod=none&command=ls", code="invalid", status=400)
        for what in ("pods", "events"):
            get(f"{at}-none/copies/{nobody}/{what}", status=404)
        get(f"{at}/status")
        get(f"{at}-none/status", status=404)
        explained = get("/v2/explain?app=cart/cart&project=shop")
        get(f"/v2/decisions/{explained['decided']['id']}")
        get(f"/v2/decisions/{nobody}", code="not_found")
        get("/v2/explain?app=none/none&project=shop", status=404)
        operations = get("/v2/operations?limit=2")
        get("/v2/operations?limit=0", code="invalid", status=400)
        get(f"/v2/operations?limit=2&after={operations['items'][-1]['id']}", record=False)
        get(f"/v2/operations/{nobody}", code="not_found")
        get(f"/v2/operations/{nobody}/events", code="not_found")
        get(f"/v2/plans/{nobody}", code="not_found")
        self.post(f"/v2/plans/{nobody}/apply", code="not_found")
        self.hub.call("DELETE", f"/v2/plans/{nobody}", code="not_found")
        self.post(f"/v2/operations/{nobody}/cancel", code="not_found")
        off = {"cluster": "onprem+private-a", "reason": "switched off, ticket 4711"}
        self.post(f"/v2/operations/{nobody}/force-fence", off, code="not_found")
        self.post(f"/v2/operations/{operations['items'][0]['id']}/force-fence", {**off, "reason": " "}, code="invalid")
        self.post(f"/v2/operations/{operations['items'][0]['id']}/force-fence", off, status=409)
        self.post(f"/v2/operations/{operations['items'][0]['id']}/cancel", status=409)
        get(f"{cart}/status")
        get(f"{cart}/callers")
        get(f"{cart}/notes")
        self.post(f"{cart}/test?dryRun=All", code="invalid", status=400, record=False)
        self.finished(self.post(f"{cart}/test?timeoutSeconds=60"))
        get(f"{cart}/tests")
        self.hub.call("GET", f"{cart}/status/events", stream=True)
        self.post("/v2/policy-tests", {"policy": {"algorithms": [{"algorithm": "Age"}]}, "member": "onprem+private-a", "project": "shop"})
        self.post("/v2/policy-tests", {"policy": "none", "member": "onprem+private-a", "project": "shop"}, status=404)
        self.post("/v2/login-links")
        self.post("/v2/login-links?dryRun=All", code="invalid", status=400, record=False)
        self.access()
        self.post("/v2/plans", {"kind": "drain"}, status=400, code="invalid")

    def access(self):
        """Tokens, role bindings, and who did what."""
        self.hub.call("GET", "/v2/whoami")
        token = {"name": "ci", "role": "deployer", "projects": ["shop"], "expiresInSeconds": 86400}
        self.post("/v2/tokens?dryRun=All", token)
        self.post("/v2/tokens", token)
        self.post("/v2/tokens?dryRun=All", token, status=409, code="already_exists", record=False)
        self.post("/v2/tokens", token, status=409, code="already_exists")
        self.hub.call("GET", "/v2/tokens")
        self.hub.call("DELETE", "/v2/tokens/ci?dryRun=All", record=False)
        self.hub.call("DELETE", "/v2/tokens/ci")
        self.hub.call("DELETE", "/v2/tokens/ci", status=404, code="not_found")
        binding = {"name": "shop-team", "subject": "group:shop-developers", "role": "deployer", "projects": ["shop"]}
        self.hub.call("PUT", "/v2/role-bindings/shop-team?dryRun=All", binding, record=False)
        assert self.get("/v2/role-bindings", record=False)["items"] == []
        self.hub.call("PUT", "/v2/role-bindings/shop-team", binding)
        self.hub.call("PUT", "/v2/role-bindings/other", binding, status=400, code="mismatched_name")
        self.hub.call("GET", "/v2/role-bindings")
        self.hub.call("DELETE", "/v2/role-bindings/shop-team?dryRun=All", record=False)
        self.hub.call("DELETE", "/v2/role-bindings/shop-team")
        self.hub.call("DELETE", "/v2/role-bindings/shop-team", status=404, code="not_found")
        self.hub.call("GET", "/v2/audit?limit=2")

    def change(self):
        """Updates, revisions and a version beside the first."""
        cart = self.cart
        app = cart.split("/deployment-intent-groups")[0]
        read = self.hub.call("GET", f"{app}/apps/cart", record=False)[0]
        read["file"] = samples.base64_of(samples.MANIFEST.replace("NAME", "cart").replace("1500m", "1400m"))
        self.hub.call("PUT", f"{app}/apps/cart", read, record=False)
        basis = self.post(f"{cart}/update?dryRun=All")[0]["basis"]
        self.finished(self.post(f"{cart}/update", {"basis": basis}))
        self.get(f"{cart}/revisions")
        self.get(f"{cart}/revisions/diff?from=1&to=2")
        self.post(f"{cart}/rollback?dryRun=All", {"spec": {"revision": "1"}})
        self.finished(self.post(f"{cart}/rollback", {"spec": {"revision": "1"}}))
        second = self.group("cart", ["private-b", "public-c"], True, "v2", samples.UNHURRIED)
        self.post(f"{second}/approve", record=False)
        target = {"spec": {"targetCompositeAppVersion": "v2", "targetDeploymentIntentGroup": "run"}}
        self.post(f"{cart}/migrate?dryRun=All", target)
        self.finished(self.post(f"{cart}/migrate", target))
        first = lambda: [b for a in self.get("/v2/apps")["items"] if (a["app"], a["version"]) == ("cart", "v1") for b in a["bindings"]]
        until("the first version has ended", lambda: not first())
        self.cart = second
        graph = f"{app.replace('/v1', '/v2')}/call-graphs"
        self.post(graph, named("calls", {"calls": []}), record=False)
        self.post(f"{graph}/calls/v1/traces", {"resourceSpans": []})
        self.post(f"{graph}/none/v1/traces", {"resourceSpans": []}, status=404)
        self.get(f"{graph}/calls/measured")
        self.get(f"{graph}/none/measured", status=404)

    def cancel(self):
        """Instantiations that are ended before they are ready."""
        slow = self.group("slow", ["private-a", "private-b"], False, manifest=samples.SLOW)
        self.post(f"{slow}/approve", record=False)
        for how in ("cancel", "stop"):
            started = self.post(f"{slow}/instantiate", record=False)
            until("it starts", lambda: self.get(started[1]["location"], record=False).get("steps"))
            stop = f"{started[1]['location']}/cancel" if how == "cancel" else f"{slow}/stop"
            self.post(f"{stop}?dryRun=All")
            self.post(stop)
            self.finished(started, "cancelled")

    def link(self):
        """A cluster whose agent connects to Drover; as far as its first certificate this program is the agent."""
        clusters = "/v2/cluster-providers/aws/clusters"
        link = f"{clusters}/behind-nat/link"
        self.post(clusters, named("behind-nat", {"link": True}, file=samples.base64_of(self.kubeconfigs[0].read_bytes())))
        assert self.get(link)["phase"] == "notInvited"
        self.post(f"{link}/invitation?dryRun=All", {"hours": 1}, record=False)
        self.post(f"{link}/invitation", {"hours": 0}, status=400, code="invalid")
        invitation = self.post(f"{link}/invitation", {"hours": 1})[0]
        assert self.get(link, record=False)["phase"] == "invited"
        connection = ask(invitation)
        asking = until("an agent asks", lambda: (found := self.get(link, record=False))["phase"] == "waiting" and found)
        self.hub.call("PUT", f"{link}/acceptance", {"fingerprint": "SHA256:none"}, status=409, code="wrong_state")
        acceptance = {"fingerprint": asking["fingerprint"]}
        self.hub.call("PUT", f"{link}/acceptance?dryRun=All", acceptance, record=False)
        assert self.get(link, record=False)["phase"] == "waiting"
        self.hub.call("PUT", f"{link}/acceptance", acceptance)
        issued = json.loads(connection.getresponse().read())
        assert issued["certificate"].startswith("-----BEGIN CERTIFICATE-----"), issued
        assert self.get(link, record=False)["phase"] == "accepted"
        self.hub.call("DELETE", f"{link}?dryRun=All", record=False)
        self.hub.call("DELETE", link)
        assert self.get(link, record=False)["phase"] == "revoked"
        direct, none = f"{clusters}/public-c/link", f"{clusters}/none/link"
        for at, status, code in ((direct, 409, "wrong_state"), (none, 404, "not_found")):
            self.get(at, status=status, code=code)
            self.post(f"{at}/invitation", {}, status=status, code=code)
            self.hub.call("PUT", f"{at}/acceptance", acceptance, status=status, code=code)
            self.hub.call("DELETE", at, status=status, code=code)
        self.hub.call("DELETE", f"{clusters}/behind-nat", record=False)

    def drain(self):
        at = "/v2/cluster-providers/onprem/clusters/private-b/cordon"
        closed = lambda: [c["cluster"] for c in self.get("/v2/clusters", record=False) if c.get("cordoned")]
        self.hub.call("PUT", f"{at}?dryRun=All", {"reason": "new kernel"}, record=False)
        assert closed() == [], closed()
        self.hub.call("PUT", at, {"reason": "new kernel"})
        until("the cluster is shown as closed", closed)
        self.hub.call("DELETE", f"{at}?dryRun=All", record=False)
        assert closed() == ["private-b"], closed()
        self.hub.call("DELETE", at)
        for method in ("PUT", "DELETE"):
            self.hub.call(method, at.replace("private-b", "none"), {"reason": "x"} if method == "PUT" else None, status=404)
        cart = next(a for a in self.get("/v2/apps")["items"] if a["app"] == "cart" and a["bindings"])
        home = cart["bindings"][0]["member"]
        provider, cluster = home.split("+")
        plan = self.post("/v2/plans", {"kind": "drain", "clusterProvider": provider, "cluster": cluster})[0]
        if plan["state"] != "proposed":
            raise SystemExit(f"there is no plan for the drain: {json.dumps(plan)}")
        self.post(f"/v2/plans/{plan['id']}/apply?dryRun=All")
        started = self.post(f"/v2/plans/{plan['id']}/apply")
        operation = started[1]["location"]
        until("it moves", lambda: self.get(operation, record=False).get("moves"))
        off = {"cluster": home, "reason": "switched off, ticket 4711"}
        self.post(f"{operation}/force-fence?dryRun=All", off)
        self.post(f"{operation}/force-fence", off)
        drained = self.finished(started)
        assert [m["from"] for m in drained["moves"]] == [home], drained["moves"]

    def end(self):
        # The group that is stopped in the middle: its operation can be cancelled, or has ended already.
        for verb in ("apply", "stop", "terminate"):
            self.post(f"/v2/cluster-providers/onprem/clusters/private-a/{verb}", status=501)
        self.post(f"{self.ledger}/terminate?dryRun=All")
        self.finished(self.post(f"{self.ledger}/terminate"))
        self.finished(self.post(f"{self.cart}/terminate"))
        self.post(f"{self.CLOUD}/terminate")
        tell("story: three clusters, a newcomer that made room, an update, a rollback, another version, a drain, and the end")


# Bodies that no operation takes: the content type and the text.
BAD_BODIES = [("application/json", ""), ("application/json", "{"), ("application/json", '["a list"]'), ("application/json", "{}"), ("text/plain", "{}")]


def nothing(template):
    """The path of something that does not exist."""
    nobody = "00000000-0000-7000-8000-000000000000"
    return "/".join(nobody if part == "{id}" else "none" if part.startswith("{") else part for part in template.split("/"))


def mistakes(hub):
    """What every operation answers to bad bodies, to a bad query, and to names of nothing."""
    for template, item in hub.document["paths"].items():
        for method, operation in item.items():
            bodies = BAD_BODIES if operation.get("requestBody") else [(None, None)]
            path = nothing(template)
            tries = [(path, kind, body) for kind, body in bodies]
            if any(p["name"] == "limit" for p in operation.get("parameters", [])):
                tries.append((f"{path}?limit=many", None, None))
            if method == "get":
                tries = [each for each in tries if "{" in template or "?" in each[0]]
            for path, kind, body in tries:
                headers = {"Content-Type": kind} if kind else {}
                status, received, text = hub.raw(method.upper(), path, body, headers)
                received = {name.lower(): value for name, value in received.items()}
                if status >= 500 and status != 501 or status < 300 and body is not None:
                    raise SystemExit(f"{method} {path} answers {status} to {body!r} as {kind}: {text}")
                if status >= 400:
                    hub.keep(operation, method.upper(), path, None, status, received["content-type"], json.loads(text), received, headers)
    tell("mistakes: every operation refuses what it cannot take")


# What every token may do, whatever its role, besides reading.
OWN = {"login_link_create"}
# The key of what every operation can answer among the examples.
EVERY = "every operation"


def strangers(hub):
    """Every write with a token that may only read another project."""
    order = {"name": "stranger", "role": "viewer", "projects": ["nobody"]}
    viewer = hub.call("POST", "/v2/tokens", order, record=False)[0]["token"]

    def ask(method, template, token, body=None, key=None, **more):
        path = nothing(template)
        headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"} | ({"Idempotency-Key": key} if key else {}) | more
        status, received, text = hub.raw(method, path, body, headers)
        received = {name.lower(): value for name, value in received.items()}
        if status >= 400:
            problem = json.loads(text)
            exchange = {"request": f"{method} {path}", "status": status, "type": received["content-type"], "answer": problem}
            if more:
                exchange["headers"] = more
            hub.seen.setdefault(EVERY, {}).setdefault(problem["code"], exchange)
        if status == 429:
            time.sleep(int(received["retry-after"]))
            return ask(method, template, token, body, key, **more)
        return status

    operations = [(method.upper(), path, o["operationId"]) for path, item in hub.document["paths"].items() for method, o in item.items()]
    for method, path, identity in operations:
        if method != "GET" and identity not in OWN:
            status = ask(method, path, viewer, "{}")
            if status not in (403, 404):
                raise SystemExit(f"{method} {path} answers {status} to who may only read another project")
        # Checked before anything is looked for, and the same everywhere.
        for wanted, token, more in ((401, "drover_revoked", {}), (421, viewer, {"Host": "evil.example"}), (403, viewer, {"Origin": "https://evil.example"})):
            status = ask(method, path, token, "{}" if method != "GET" else None, **more)
            if status != wanted and not (method == "GET" and "Origin" in more):
                raise SystemExit(f"{method} {path} answers {status} instead of {wanted} with the token {token[:14]} and {more}")
    ask("POST", "/v2/login-links", viewer, key="tour")
    assert ask("POST", "/v2/login-links", viewer, key="tour") == 409
    assert ask("POST", "/v2/login-links", viewer, "{}", key="tour") == 422
    hub.seen[EVERY] = {code: hub.seen[EVERY][code] for code in GENERAL}
    hub.call("DELETE", "/v2/tokens/stranger", record=False)
    tell("strangers: every write refuses who may not use it")


# Problems that every operation can answer; those of keys only a POST, and a refused origin only what writes.
GENERAL = ("answer_not_kept", "forbidden", "host_not_allowed", "idempotency_key_reused", "origin_refused", "unauthorized")


# What operations with a body answer to a body that none of them takes.
OF_BODIES = ("empty_body", "malformed_json", "unsupported_media_type")


def share(hub):
    """Keeps what many operations answer with the same words once; an empty exchange of an operation stands for it."""
    same = lambda exchange: {name: value for name, value in exchange["answer"].items() if name != "instance"}
    for code in OF_BODIES:
        shared = hub.seen[EVERY][code] = hub.seen["project_create"][code]
        for exchanges in (each for identity, each in hub.seen.items() if identity != EVERY):
            if code in exchanges and same(exchanges[code]) == same(shared):
                exchanges[code] = {}


def takes(hub, method, path, name):
    """Whether an operation has this parameter."""
    return any(p["name"] == name for p in hub.operation(method, path).get("parameters", []))


def missing(hub):
    """Operations without a successful exchange, and without a problem."""
    operations = {o["operationId"]: (m, p) for p, item in hub.document["paths"].items() for m, o in item.items()}
    unasked = sorted(set(operations) - set(hub.seen))
    without = sorted(i for i in set(hub.seen) - NEVER - {EVERY} if not any(key.isdigit() for key in hub.seen[i]) and any(s.isdigit() for s in operations_responses(hub, i)))
    return unasked, without


def operations_responses(hub, identity):
    return next(o["responses"] for item in hub.document["paths"].values() for o in item.values() if o["operationId"] == identity)


def main():
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("url")
    arguments.add_argument("kubeconfigs", type=pathlib.Path)
    arguments.add_argument("--record", type=pathlib.Path)
    arguments.add_argument("--check", type=pathlib.Path)
    arguments.add_argument("--faults", type=pathlib.Path)
    given = arguments.parse_args()
    hub = Hub(given.url)
    kubeconfigs = sorted(given.kubeconfigs.glob("*.kubeconfig"))
    documents(hub, kubeconfigs[0].read_text())
    story = Story(hub, kubeconfigs)
    for part in (story.register, story.cloud, story.deploy, story.look, story.change, story.cancel, story.link, story.drain, story.end):
        part()
        tell(f"story: {part.__name__}")
    mistakes(hub)
    strangers(hub)
    if given.faults:
        until("the faults are recorded", given.faults.exists, seconds=300)
        hub.seen[EVERY] |= json.loads(given.faults.read_text())
    unasked, without = missing(hub)
    share(hub)
    exchanges = {identity: {key: hub.seen[identity][key] for key in sorted(hub.seen[identity])} for identity in sorted(hub.seen)}
    if given.record:
        given.record.write_text(json.dumps(exchanges, indent=1, ensure_ascii=False) + "\n")
    if unasked or without:
        raise SystemExit(f"not asked: {unasked}; without a success: {without}")
    if given.check:
        keys = lambda all_of: {f"{identity} {key}" for identity in all_of for key in all_of[identity]}
        recorded = keys(json.loads(given.check.read_text()))
        if keys(exchanges) != recorded:
            raise SystemExit(f"{given.check} is not what was seen; record it again: {sorted(keys(exchanges) ^ recorded)}")
    tell(f"tour: {len(exchanges)} operations, {sum(map(len, exchanges.values()))} different answers")


if __name__ == "__main__":
    sys.exit(main())
