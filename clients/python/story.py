"""Three clusters, an application that moves for a newcomer, and a cluster that is drained: the flagship story in Python."""

import base64
import os
import pathlib
import time

from drover_client import AuthenticatedClient, models
from drover_client.api.app_intents import app_intent_create
from drover_client.api.apps import app_create
from drover_client.api.cluster_providers import cluster_provider_create
from drover_client.api.cluster_references import cluster_reference_create
from drover_client.api.clusters import cluster_capacity_list, cluster_create
from drover_client.api.composite_apps import composite_app_create, composite_app_delete
from drover_client.api.composite_profiles import composite_profile_create
from drover_client.api.deployment_intent_groups import deployment_intent_group_create
from drover_client.api.generic_placement_intents import generic_placement_intent_create
from drover_client.api.intents import group_intent_create
from drover_client.api.lifecycle import approve, instantiate, terminate
from drover_client.api.logical_clouds import logical_cloud_create, logical_cloud_instantiate
from drover_client.api.migration_intents import migration_app_intent_create, migration_intent_create
from drover_client.api.operations import operation_get
from drover_client.api.plans import plan_apply, plan_create
from drover_client.api.projects import project_create

CLUSTERS = [("onprem", 1, "private-a"), ("onprem", 1, "private-b"), ("aws", 5, "public-c")]
MANIFEST = """
apiVersion: apps/v1
kind: Deployment
metadata: {name: NAME}
spec:
  replicas: 2
  selector: {matchLabels: {app: NAME}}
  template:
    metadata: {labels: {app: NAME}}
    spec:
      containers: [{name: c, image: registry.example/app, resources: {requests: {cpu: 1500m, memory: 64Mi}}}]
"""

drover = AuthenticatedClient(
    base_url=os.environ.get("DROVER_URL", "http://127.0.0.1:7070"), token=os.environ.get("DROVER_TOKEN", "none"), timeout=60
)


def done(answer):
    """The answer, unless it is a problem."""
    if isinstance(answer, models.Problem):
        raise SystemExit(f"{answer.code}: {answer.detail}")
    return answer


def named(kind, name, **spec):
    """A document."""
    return kind.from_dict({"metadata": {"name": name}, **({"spec": spec} if spec else {})})


def finished(operation):
    """Waits until the operation has ended."""
    for _ in range(240):
        operation = done(operation_get.sync(str(operation.id), client=drover))
        if operation.state in (models.OperationState.SUCCEEDED, models.OperationState.FAILED, models.OperationState.CANCELLED):
            break
        time.sleep(0.25)
    assert operation.state == models.OperationState.SUCCEEDED, f"{operation.kind}: {operation.message} {operation.reasons}"
    return operation


def register():
    """Registers the clusters, and waits until Drover knows their room."""
    for provider, priority in sorted({(provider, priority) for provider, priority, _ in CLUSTERS}):
        done(cluster_provider_create.sync(client=drover, body=named(models.ClusterProvider, provider, priority=priority)))
    kubeconfigs = pathlib.Path(os.environ["DROVER_KUBECONFIGS"])
    for (provider, _, name), file in zip(CLUSTERS, sorted(kubeconfigs.glob("*.kubeconfig")), strict=True):
        body = models.ClusterUpload.from_dict({"metadata": {"name": name}, "file": base64.b64encode(file.read_bytes()).decode()})
        done(cluster_create.sync(provider, client=drover, body=body))
    for _ in range(240):
        clusters = done(cluster_capacity_list.sync(client=drover, view="capacity"))
        if sum(cluster.state == "Ready" and len(cluster.nodes) > 0 for cluster in clusters) == len(CLUSTERS):
            return
        time.sleep(0.25)
    raise SystemExit(f"the clusters did not become ready: {clusters}")


def deploy(name, where, movable):
    """Deploys an application of two pods of 1.5 CPUs each, and returns its operation."""
    app = ("shop", name, "v1")
    group = (*app, "run")
    done(composite_app_create.sync("shop", client=drover, body=named(models.CompositeApp, name, compositeAppVersion="v1")))
    file = base64.b64encode(MANIFEST.replace("NAME", name).encode()).decode()
    done(app_create.sync(*app, client=drover, body=models.AppUpload.from_dict({"metadata": {"name": name}, "file": file})))
    done(composite_profile_create.sync(*app, client=drover, body=named(models.CompositeProfile, "profile")))
    run = named(models.DeploymentIntentGroup, "run", compositeProfile="profile", version=name, logicalCloud="all", overrideValues=[])
    done(deployment_intent_group_create.sync(*app, client=drover, body=run))
    done(generic_placement_intent_create.sync(*group, client=drover, body=named(models.GenericPlacementIntent, "placement")))
    any_of = [{"clusterProvider": provider, "cluster": cluster} for provider, _, cluster in CLUSTERS if cluster in where]
    intent = named(models.AppIntent, name, app=name, intent={"anyOf": any_of})
    done(app_intent_create.sync(*group, "placement", client=drover, body=intent))
    used = named(models.GroupIntent, "used", intent={"genericPlacementIntent": "placement"})
    done(group_intent_create.sync(*group, client=drover, body=used))
    done(migration_intent_create.sync(*group, client=drover, body=named(models.MigrationIntent, "migration")))
    may_move = named(models.MigrationAppIntent, name, app=name, migration=movable, priority=1 if movable else 10)
    done(migration_app_intent_create.sync(*group, "migration", client=drover, body=may_move))
    done(approve.sync(*group, client=drover))
    return finished(done(instantiate.sync(*group, client=drover)))


register()
done(project_create.sync(client=drover, body=named(models.Project, "shop")))
done(logical_cloud_create.sync("shop", client=drover, body=named(models.LogicalCloud, "all", level="0")))
for provider, _, cluster in CLUSTERS:
    reference = named(models.ClusterReference, cluster, clusterProvider=provider, cluster=cluster)
    done(cluster_reference_create.sync("shop", "all", client=drover, body=reference))
done(logical_cloud_instantiate.sync("shop", "all", client=drover))

deploy("cart", ["private-a", "private-b", "public-c"], movable=True)
newcomer = deploy("ledger", ["private-a"], movable=False)
print("the newcomer made room:", [f"{move.app} to {move.to}" for move in newcomer.moves])
assert [(move.app, move.to) for move in newcomer.moves] == [("cart/cart", "onprem+private-b")], newcomer.moves

wish = models.PlanWishType1.from_dict({"kind": "drain", "clusterProvider": "onprem", "cluster": "private-b"})
plan = done(plan_create.sync(client=drover, body=wish))
drained = finished(done(plan_apply.sync(str(plan.id), client=drover)))
print("private-b is drained:", [f"{move.app} to {move.to}" for move in drained.moves])
assert [(move.app, move.to) for move in drained.moves] == [("cart/cart", "aws+public-c")], drained.moves

for name in ("cart", "ledger"):
    finished(done(terminate.sync("shop", name, "v1", "run", client=drover)))
print("done")
