// Three clusters, an application that moves for a newcomer, and a cluster that is drained: the flagship story in TypeScript.
import assert from "node:assert/strict";
import { readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { drover, type Schemas } from "./src/index.js";

const CLUSTERS = [
  { provider: "onprem", priority: 1, cluster: "private-a" },
  { provider: "onprem", priority: 1, cluster: "private-b" },
  { provider: "aws", priority: 5, cluster: "public-c" },
];
const api = drover(process.env.DROVER_URL ?? "http://127.0.0.1:7070", process.env.DROVER_TOKEN ?? "none");
const base64 = (content: string | Buffer) => Buffer.from(content).toString("base64");

const manifest = (name: string) => `
apiVersion: apps/v1
kind: Deployment
metadata: {name: ${name}}
spec:
  replicas: 2
  selector: {matchLabels: {app: ${name}}}
  template:
    metadata: {labels: {app: ${name}}}
    spec:
      containers: [{name: c, image: registry.example/app, resources: {requests: {cpu: 1500m, memory: 64Mi}}}]
`;

/** The answer, unless the request was refused. */
async function done<T>(answer: Promise<{ data?: T; error?: Schemas["Problem"] }>): Promise<T> {
  const { data, error } = await answer;
  if (error) throw new Error(`${error.code}: ${error.detail}`);
  return data as T;
}

/** Waits until the operation has ended. */
async function finished(answer: unknown): Promise<Schemas["Operation"]> {
  let operation = answer as Schemas["Operation"];
  for (let i = 0; i < 240 && !["succeeded", "failed", "cancelled"].includes(operation.state); i++) {
    await sleep(250);
    operation = await done(api.GET("/v2/operations/{id}", { params: { path: { id: operation.id } } }));
  }
  assert.equal(operation.state, "succeeded", operation.message);
  return operation;
}

/** Registers the clusters, and waits until Drover knows their room. */
async function register(): Promise<void> {
  const folder = process.env.DROVER_KUBECONFIGS ?? ".";
  const files = readdirSync(folder).filter((file) => file.endsWith(".kubeconfig")).sort();
  for (const name of new Set(CLUSTERS.map(({ provider }) => provider))) {
    const priority = CLUSTERS.find(({ provider }) => provider === name)?.priority ?? 10;
    await done(api.POST("/v2/cluster-providers", { body: { metadata: { name }, spec: { priority } } }));
  }
  for (const [i, { provider, cluster }] of CLUSTERS.entries()) {
    const body = { metadata: { name: cluster }, file: base64(readFileSync(join(folder, files[i]))) };
    const path = { clusterProvider: provider };
    await done(api.POST("/v2/cluster-providers/{clusterProvider}/clusters", { params: { path }, body }));
  }
  for (let i = 0; i < 240; i++) {
    const clusters = (await done(
      api.GET("/v2/clusters", { params: { query: { view: "capacity" } } }),
    )) as Schemas["ClusterCapacity"][];
    if (clusters.filter(({ state, nodes }) => state === "Ready" && nodes.length > 0).length === CLUSTERS.length) return;
    await sleep(250);
  }
  throw new Error("the clusters did not become ready");
}

/** Deploys an application of two pods of 1.5 CPUs each, and returns its operation. */
async function deploy(name: string, where: string[], movable: boolean): Promise<Schemas["Operation"]> {
  const CA = "/v2/projects/{project}/composite-apps/{compositeApp}/{compositeAppVersion}";
  const app = { project: "shop", compositeApp: name, compositeAppVersion: "v1" };
  const group = { ...app, deploymentIntentGroup: "run" };
  const of = { params: { path: app } };
  const inGroup = { params: { path: group } };
  await done(
    api.POST("/v2/projects/{project}/composite-apps", {
      params: { path: { project: "shop" } },
      body: { metadata: { name }, spec: { compositeAppVersion: "v1" } },
    }),
  );
  await done(api.POST(`${CA}/apps`, { ...of, body: { metadata: { name }, file: base64(manifest(name)) } }));
  await done(api.POST(`${CA}/composite-profiles`, { ...of, body: { metadata: { name: "profile" } } }));
  const spec = { compositeProfile: "profile", version: name, logicalCloud: "all", overrideValues: [] };
  await done(api.POST(`${CA}/deployment-intent-groups`, { ...of, body: { metadata: { name: "run" }, spec } }));
  const DIG = `${CA}/deployment-intent-groups/{deploymentIntentGroup}` as const;
  await done(api.POST(`${DIG}/generic-placement-intents`, { ...inGroup, body: { metadata: { name: "placement" } } }));
  const anyOf = CLUSTERS.filter(({ cluster }) => where.includes(cluster)).map(({ provider, cluster }) => ({
    clusterProvider: provider,
    cluster,
  }));
  await done(
    api.POST(`${DIG}/generic-placement-intents/{genericPlacementIntent}/app-intents`, {
      params: { path: { ...group, genericPlacementIntent: "placement" } },
      body: { metadata: { name }, spec: { app: name, intent: { anyOf } } },
    }),
  );
  const intent = { genericPlacementIntent: "placement" };
  await done(api.POST(`${DIG}/intents`, { ...inGroup, body: { metadata: { name: "used" }, spec: { intent } } }));
  await done(api.POST(`${DIG}/migration-intents`, { ...inGroup, body: { metadata: { name: "migration" } } }));
  await done(
    api.POST(`${DIG}/migration-intents/{migrationIntent}/app-intents`, {
      params: { path: { ...group, migrationIntent: "migration" } },
      body: { metadata: { name }, spec: { app: name, migration: movable, priority: movable ? 1 : 10 } },
    }),
  );
  await done(api.POST(`${DIG}/approve`, inGroup));
  return finished(await done(api.POST(`${DIG}/instantiate`, inGroup)));
}

const moves = ({ moves }: Schemas["Operation"]) => moves?.map(({ app, to }) => `${app} to ${to}`);

await register();
await done(api.POST("/v2/projects", { body: { metadata: { name: "shop" } } }));
const project = { project: "shop" };
const cloud = { ...project, logicalCloud: "all" };
const LC = "/v2/projects/{project}/logical-clouds";
await done(api.POST(LC, { params: { path: project }, body: { metadata: { name: "all" }, spec: { level: "0" } } }));
for (const { provider, cluster } of CLUSTERS) {
  const body = { metadata: { name: cluster }, spec: { clusterProvider: provider, cluster } };
  await done(api.POST(`${LC}/{logicalCloud}/cluster-references`, { params: { path: cloud }, body }));
}
await done(api.POST(`${LC}/{logicalCloud}/instantiate`, { params: { path: cloud } }));

await deploy("cart", ["private-a", "private-b", "public-c"], true);
const newcomer = await deploy("ledger", ["private-a"], false);
console.log("the newcomer made room:", moves(newcomer));
assert.deepEqual(moves(newcomer), ["cart/cart to onprem+private-b"]);

const plan = await done(
  api.POST("/v2/plans", { body: { kind: "drain", clusterProvider: "onprem", cluster: "private-b" } }),
);
const drained = await finished(await done(api.POST("/v2/plans/{id}/apply", { params: { path: { id: plan.id } } })));
console.log("private-b is drained:", moves(drained));
assert.deepEqual(moves(drained), ["cart/cart to aws+public-c"]);

for (const name of ["cart", "ledger"]) {
  const path = { project: "shop", compositeApp: name, compositeAppVersion: "v1", deploymentIntentGroup: "run" };
  const group = "/v2/projects/{project}/composite-apps/{compositeApp}/{compositeAppVersion}/deployment-intent-groups/{deploymentIntentGroup}";
  await finished(await done(api.POST(`${group}/terminate`, { params: { path } })));
}
console.log("done");
