//! An environment for workflows: own tables, peers in memory, four members of 1000m each.

use std::sync::Arc;

use drover_api::bindings::{DesiredBinding, DesiredState};
use drover_api::scheduling::{
    Amounts, AppRequest, Claim, ClaimState, Demand, DigRef, Element, Intent, MemberKey, PlacementTerms, PodGroup, PodsOnNode,
};
use drover_orchestrator::environment::{Environment, Wakes, binding_key};
use drover_orchestrator::render::Rendered;
use drover_orchestrator::statuses::{News, Statuses};
use drover_orchestrator::store::binding::{self, Binding, Role};
use drover_orchestrator::store::deployment::{self, DeploymentState};
use drover_orchestrator::store::{bundle, hold};
use drover_orchestrator::workflows::{Grow, Instantiate, Relocate, Terminate, Test, Update};
use drover_orchestrator::{Config, migrations};
use drover_store::{SealKey, Store, StoreConfig};
use drover_testkit::{TestDb, prepared_db, seal_key, truncate};
use drover_workflow::{Engine, Registry};
use serde_json::json;
use uuid::Uuid;

use crate::fakes::Fakes;

/// A database with the service's tables. Environments can use it one after the other.
pub struct Ground {
    store: Store,
    _db: TestDb,
}

/// Members a, b, d (onprem) and c (aws), of 1000m each.
pub struct Base {
    pub fakes: Fakes,
    pub environment: Arc<Environment>,
    /// If no other environment uses its database.
    _ground: Option<Ground>,
}

pub fn member(cluster: &str) -> MemberKey {
    MemberKey::new(if cluster == "c" { "aws" } else { "onprem" }, cluster)
}

pub fn request(app: &str, cpu: i64, on: &[&str]) -> AppRequest {
    let element = |cluster: &&str| Element {
        cluster_provider: Some(member(cluster).provider().to_owned()),
        cluster: Some((*cluster).to_owned()),
        ..Element::default()
    };
    let group = PodGroup { workload: format!("Deployment/{app}"), replicas: 1, requests: Amounts::pod(cpu, 1), ..PodGroup::default() };
    AppRequest {
        app: app.to_owned(),
        demand: Demand { groups: vec![group], ..Demand::default() },
        terms: PlacementTerms {
            intent: Intent { all_of: vec![], any_of: on.iter().map(element).collect() },
            logical_cloud: ["a", "b", "c", "d"].iter().map(|cluster| member(cluster)).collect(),
            ..PlacementTerms::default()
        },
    }
}

pub fn rendered(name: &str) -> Rendered {
    Rendered::of(vec![json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}})]).unwrap()
}

/// A database with the service's tables.
pub async fn migrated_db() -> TestDb {
    let migrate = |url| async move {
        Store::connect(&StoreConfig::new("orchestrator", url), &migrations()).await.unwrap().close().await;
    };
    prepared_db("orchestrator", migrate).await
}

impl Ground {
    pub async fn new() -> Self {
        let _ =
            tracing_subscriber::fmt().with_max_level(tracing_subscriber::filter::LevelFilter::WARN).with_writer(std::io::stderr).try_init();
        let db = migrated_db().await;
        // Few connections: there are hundreds of these databases, and what a new connection reads costs more than the queries of a test.
        let config = StoreConfig { max_connections: 4, ..StoreConfig::new("orchestrator", db.url.clone()) };
        let store = Store::connect(&config, &migrations()).await.unwrap();
        let store = store.with_key(Arc::new(SealKey::parse(&seal_key()).unwrap()));
        let filled = "select relname::text from pg_class where relnamespace = current_schema()::regnamespace and relkind = 'r'
            and not starts_with(relname, '_migrations_') and pg_relation_size(oid) > 0";
        let filled: Vec<String> = sqlx::query_scalar(filled).fetch_all(&mut *store.acquire().await.unwrap()).await.unwrap();
        assert_eq!(filled, ["planning_ledger"], "migrations insert rows into these tables; `empty` must do it again");
        Self { store, _db: db }
    }

    /// Removes what earlier environments left, and makes the tables as the migrations did.
    async fn empty(&self) {
        truncate(&self.store).await;
        sqlx::query("insert into planning_ledger default values").execute(&mut *self.store.acquire().await.unwrap()).await.unwrap();
    }
}

impl Base {
    /// One with a database of its own.
    pub async fn fresh() -> Self {
        let ground = Ground::new().await;
        let base = Self::on(&ground).await;
        Self { _ground: Some(ground), ..base }
    }

    /// One on a database that no other environment uses any more.
    pub async fn on(ground: &Ground) -> Self {
        ground.empty().await;
        let fakes = Fakes::with(&[("onprem", "a", 1, 1000), ("onprem", "b", 1, 1000), ("aws", "c", 5, 1000), ("onprem", "d", 1, 1000)]);
        let config = Config { ready_seconds: 20, gone_seconds: 20, room_seconds: 20, ..Config::default() };
        let environment = Environment {
            store: ground.store.clone(),
            services: fakes.services(),
            statuses: Statuses::default(),
            traffic: Default::default(),
            deadlines: config.deadlines(),
            wakes: Wakes::channel().0,
        };
        Self { fakes, environment: Arc::new(environment), _ground: None }
    }

    /// A group in this state, with its document and two bundles.
    pub async fn group(&self, name: &str, state: DeploymentState) -> DigRef {
        let dig = DigRef { id: Uuid::now_v7(), project: "p".into(), composite_app: name.into(), version: "v1".into(), name: name.into() };
        let mut tx = self.environment.store.begin().await.unwrap();
        sqlx::query(
            "insert into resource (id, kind, path, name, metadata, spec) values ($1, 'deployment-intent-group', $2, $3, '{}', '{}')",
        )
        .bind(dig.id)
        .bind(format!("/v2/{name}"))
        .bind(name)
        .execute(&mut *tx)
        .await
        .unwrap();
        deployment::reach(&mut tx, dig.id, state, 1, None).await.unwrap();
        for content in ["old", "new"] {
            bundle::put(&mut tx, self.environment.store.key().unwrap(), &rendered(&format!("{name}-{content}"))).await.unwrap();
        }
        tx.commit().await.unwrap();
        dig
    }

    /// A current binding of an app on a cluster, with its claim and its copy.
    pub async fn serving(&self, dig: &DigRef, request: AppRequest, cluster: &str) -> Binding {
        let binding = Binding {
            id: Uuid::now_v7(),
            dig: dig.clone(),
            app: request.app.clone(),
            member: member(cluster),
            namespace: "default".into(),
            digest: rendered(&format!("{}-old", dig.name)).digest,
            request,
            role: Role::Current,
            operation: Uuid::now_v7(),
        };
        let mut tx = self.environment.store.begin().await.unwrap();
        binding::put(&mut tx, &binding).await.unwrap();
        tx.commit().await.unwrap();
        self.fakes.ledger.put(Claim {
            id: binding.id,
            dig: Arc::new(dig.clone()),
            request: Arc::new(binding.request.clone()),
            member: binding.member.clone(),
            state: ClaimState::Held,
            pods: vec![PodsOnNode { node: format!("{cluster}-1"), group: 0, count: 1 }],
            surging: false,
            fence: 0,
            operation: binding.operation,
        });
        self.fakes.members.seed(DesiredBinding { fence: 0, ..binding.desired(DesiredState::Present, 0) });
        binding
    }

    pub fn registry(&self) -> Registry {
        Registry::new()
            .with::<Instantiate>(self.environment.clone())
            .with::<Relocate>(self.environment.clone())
            .with::<Terminate>(self.environment.clone())
            .with::<Update>(self.environment.clone())
            .with::<Test>(self.environment.clone())
            .with::<Grow>(self.environment.clone())
    }

    pub fn outside(&self, engine: &Engine) {
        for status in self.fakes.members.statuses() {
            if self.environment.statuses.get(status.id).as_deref() != Some(&status) {
                let key = binding_key(status.id);
                if self.environment.statuses.set(status.id, Some(status)) == News::Decisive {
                    engine.wake(&key);
                }
            }
        }
    }

    /// `app@cluster role` of all bindings that are not gone, sorted.
    pub async fn bindings(&self, digs: &[&DigRef]) -> Vec<String> {
        let mut tx = self.environment.store.begin().await.unwrap();
        let mut all = Vec::new();
        for dig in digs {
            for row in binding::of_dig(&mut tx, dig.id).await.unwrap() {
                all.push(format!("{}@{} {:?}", row.app, row.member.cluster(), row.role).to_lowercase());
            }
        }
        all.sort();
        all
    }

    pub async fn state(&self, dig: &DigRef) -> (DeploymentState, bool) {
        let mut tx = self.environment.store.begin().await.unwrap();
        let state = deployment::load(&mut tx, dig.id, false).await.unwrap().state;
        (state, hold::holder(&mut tx, dig.id).await.unwrap().is_some())
    }

    /// An error unless no group is held and claims, bindings and the copies in the members are exactly these.
    pub async fn expect(&self, digs: &[&DigRef], claims: &[&str], bindings: &[&str], present: &[&str]) -> Result<(), String> {
        let is = (self.fakes.ledger.summary(), self.bindings(digs).await, self.fakes.members.present());
        let wanted = [claims, bindings, present].map(|list| list.iter().map(|text| (*text).to_owned()).collect::<Vec<_>>());
        for dig in digs {
            if self.state(dig).await.1 {
                return Err(format!("{} is still held", dig.name));
            }
        }
        if is == (wanted[0].clone(), wanted[1].clone(), wanted[2].clone()) { Ok(()) } else { Err(format!("wanted {wanted:?}, is {is:?}")) }
    }
}
