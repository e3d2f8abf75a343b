//! Which objects were applied, and which kinds may have leftovers in a member.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use drover_api::bindings::{DesiredBinding, DesiredState};
use drover_members::{Applied, Object, ObjectId, Scaled};
use drover_scheduling::MemberKey;
use drover_store::{Store, StoreResult};
use sqlx::types::Json;
use uuid::Uuid;

/// One object of a binding as it was last applied.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Item {
    /// The digest that was applied.
    pub digest: Arc<str>,
    /// The member's answer. `None`: it is not known whether the object was applied.
    pub applied: Option<Applied>,
}

/// The objects of a binding. Most bindings have a few; a B-tree would reserve memory for eleven entries, and the values are boxed
/// because any map reserves memory for four.
pub type Inventory = HashMap<Arc<ObjectId>, Box<Item>>;

#[derive(sqlx::FromRow)]
struct Raw {
    binding: Uuid,
    api_version: String,
    kind: String,
    namespace: String,
    name: String,
    digest: String,
    uid: Option<String>,
    generation: Option<i64>,
    resource_version: Option<String>,
    scaled_by: Option<String>,
    replicas: Option<i32>,
}

/// The inventories of a member's bindings, by binding.
pub async fn of_member(store: &Store, member: &MemberKey) -> StoreResult<BTreeMap<Uuid, Inventory>> {
    let rows: Vec<Raw> = sqlx::query_as(
        "select i.binding, i.api_version, i.kind, i.namespace, i.name, i.digest, i.uid, i.generation, i.resource_version, i.scaled_by, i.replicas
         from inventory i join binding b on b.id = i.binding where b.member = $1",
    )
    .bind(&member.0)
    .fetch_all(&mut *store.acquire().await?)
    .await?;
    let mut inventories: BTreeMap<Uuid, Inventory> = BTreeMap::new();
    for Raw { binding, api_version, kind, namespace, name, digest, uid, generation, resource_version, scaled_by, replicas } in rows {
        let id = ObjectId { api_version, kind, namespace, name };
        let scaled = scaled_by.zip(replicas).map(|(by, replicas)| Box::new(Scaled { by, replicas }));
        let applied =
            uid.map(|uid| Applied { uid: uid.into(), generation, resource_version: resource_version.unwrap_or_default(), scaled });
        inventories.entry(binding).or_default().insert(Arc::new(id), Box::new(Item { digest: digest.into(), applied }));
    }
    Ok(inventories)
}

/// The numbers of replicas that other field managers have chosen for workloads.
pub type Replicas = BTreeMap<ObjectId, i32>;

/// Records which objects are about to be applied, and that the member may have leftovers of these kinds from now on. Returns `None`, and
/// writes nothing, if the desired state has changed in the meantime.
///
/// If asked for, it returns the numbers of replicas of the same app's workloads in other members; the largest where there are several.
pub async fn intend(store: &Store, desired: &DesiredBinding, objects: &[Object], elsewhere: bool) -> StoreResult<Option<Replicas>> {
    let column = |of: fn(&Object) -> &str| objects.iter().map(of).map(str::to_owned).collect::<Vec<String>>();
    let (api_versions, kinds) = (column(|o| &o.id.api_version), column(|o| &o.id.kind));
    let (recorded, running): (bool, Json<Vec<Running>>) = sqlx::query_as(
        "with newest as (
             select from binding where id = $1 and member = $7 and namespace = $8 and digest = $9 and fence = $10 and present = $11
         ), kinds as (
             insert into member_kind (member, api_version, kind)
             select distinct $7, * from unnest($2::text[], $3::text[]) where exists (table newest) on conflict do nothing
         ), recorded as (
             insert into inventory (binding, api_version, kind, namespace, name, digest)
             select $1, * from unnest($2::text[], $3::text[], $4::text[], $5::text[], $6::text[]) where exists (table newest)
             on conflict (binding, api_version, kind, namespace, name) do update set digest = excluded.digest, uid = null
             returning 1
         ), running as (
             select i.api_version, i.kind, i.namespace, i.name, max(i.replicas) as replicas
             from binding b join inventory i on i.binding = b.id
             where $12 and b.dig ->> 'id' = $13 and b.app = $14 and b.member <> $7 and b.present and i.scaled_by is not null
             group by 1, 2, 3, 4
         )
         select exists (table recorded), coalesce((select json_agg(running) from running), '[]')",
    )
    .bind(desired.id)
    .bind(&api_versions)
    .bind(&kinds)
    .bind(column(|o| &o.id.namespace))
    .bind(column(|o| &o.id.name))
    .bind(column(|o| &o.digest))
    .bind(&desired.member.0)
    .bind(&desired.namespace)
    .bind(&*desired.digest)
    .bind(desired.fence)
    .bind(desired.state == DesiredState::Present)
    .bind(elsewhere)
    .bind(desired.dig.id.to_string())
    .bind(&desired.app)
    .fetch_one(&mut *store.acquire().await?)
    .await?;
    let replicas = running
        .0
        .into_iter()
        .map(|Running { api_version, kind, namespace, name, replicas }| (ObjectId { api_version, kind, namespace, name }, replicas));
    Ok(recorded.then(|| replicas.collect()))
}

/// A workload that another field manager has scaled.
#[derive(serde::Deserialize)]
struct Running {
    api_version: String,
    kind: String,
    namespace: String,
    name: String,
    replicas: i32,
}

/// Records the member's answers to the first of these objects.
pub async fn applied(store: &Store, binding: Uuid, objects: &[Object], answers: &[Applied]) -> StoreResult<()> {
    let ids = |of: fn(&ObjectId) -> &String| objects.iter().zip(answers).map(|(object, _)| of(&object.id).clone()).collect::<Vec<String>>();
    let uids: Vec<&str> = answers.iter().map(|applied| &*applied.uid).collect();
    let generations: Vec<Option<i64>> = answers.iter().map(|applied| applied.generation).collect();
    let scaled_by: Vec<Option<&str>> = answers.iter().map(|applied| applied.scaled.as_ref().map(|scaled| scaled.by.as_str())).collect();
    let replicas: Vec<Option<i32>> = answers.iter().map(|applied| applied.scaled.as_ref().map(|scaled| scaled.replicas)).collect();
    let versions: Vec<&str> = answers.iter().map(|applied| applied.resource_version.as_str()).collect();
    sqlx::query(
        "update inventory i set uid = a.uid, generation = a.generation, resource_version = a.resource_version,
             scaled_by = a.scaled_by, replicas = a.replicas
         from unnest($2::text[], $3::text[], $4::text[], $5::text[], $6::text[], $7::bigint[], $8::text[], $9::text[], $10::integer[])
              as a (api_version, kind, namespace, name, uid, generation, resource_version, scaled_by, replicas)
         where i.binding = $1 and (i.api_version, i.kind, i.namespace, i.name) = (a.api_version, a.kind, a.namespace, a.name)",
    )
    .bind(binding)
    .bind(ids(|id| &id.api_version))
    .bind(ids(|id| &id.kind))
    .bind(ids(|id| &id.namespace))
    .bind(ids(|id| &id.name))
    .bind(uids)
    .bind(generations)
    .bind(versions)
    .bind(scaled_by)
    .bind(replicas)
    .execute(&mut *store.acquire().await?)
    .await?;
    Ok(())
}

/// An object that another app contains.
pub struct Held {
    pub binding: Uuid,
    /// Name of the other app's group.
    pub group: String,
    pub app: String,
    pub object: ObjectId,
    /// Digest of its content there.
    pub digest: String,
    /// It is only a name, which whoever brings the object takes over.
    pub stand_in: bool,
}

/// The objects that other apps have in the member of this binding.
pub async fn held_by_others(store: &Store, desired: &DesiredBinding) -> StoreResult<Vec<Held>> {
    #[derive(sqlx::FromRow)]
    struct Raw {
        binding: Uuid,
        dig: String,
        app: String,
        api_version: String,
        kind: String,
        namespace: String,
        name: String,
        digest: String,
        stand_in: bool,
    }
    let rows: Vec<Raw> = sqlx::query_as(
        "select i.binding, b.dig ->> 'name' as dig, b.app, i.api_version, i.kind, i.namespace, i.name, i.digest, b.stand_in
         from inventory i join binding b on b.id = i.binding
         where b.member = $1 and b.present and (b.dig ->> 'id' <> $2 or b.app <> $3)",
    )
    .bind(&desired.member.0)
    .bind(desired.dig.id.to_string())
    .bind(&desired.app)
    .fetch_all(&mut *store.acquire().await?)
    .await?;
    let held = |Raw { binding, dig: group, app, api_version, kind, namespace, name, digest, stand_in }| {
        let object = ObjectId { api_version, kind, namespace, name };
        Held { binding, group, app, object, digest, stand_in }
    };
    Ok(rows.into_iter().map(held).collect())
}

/// Removes an object that no longer exists, or that was left in place: `kept` says why.
pub async fn remove(store: &Store, binding: Uuid, id: &ObjectId, kept: Option<&str>) -> StoreResult<()> {
    sqlx::query(
        "with noted as (update binding set kept = array_append(kept, $6) where id = $1 and $6 is not null)
         delete from inventory where binding = $1 and api_version = $2 and kind = $3 and namespace = $4 and name = $5",
    )
    .bind(binding)
    .bind(&id.api_version)
    .bind(&id.kind)
    .bind(&id.namespace)
    .bind(&id.name)
    .bind(kept)
    .execute(&mut *store.acquire().await?)
    .await?;
    Ok(())
}

/// Kinds that were applied in a member and may still have objects of this installation.
pub async fn kinds(store: &Store, member: &MemberKey) -> StoreResult<Vec<(String, String)>> {
    Ok(sqlx::query_as("select api_version, kind from member_kind where member = $1")
        .bind(&member.0)
        .fetch_all(&mut *store.acquire().await?)
        .await?)
}

/// Deletes the kinds of a member of which no binding has an object, except those in `kept`. Returns the deleted kinds.
pub async fn forget_kinds(store: &Store, member: &MemberKey, kept: BTreeSet<(String, String)>) -> StoreResult<Vec<(String, String)>> {
    let (api_versions, kinds): (Vec<String>, Vec<String>) = kept.into_iter().unzip();
    Ok(sqlx::query_as(
        "delete from member_kind k
         where k.member = $1
           and not exists (select from unnest($2::text[], $3::text[]) as kept (api_version, kind)
                           where (kept.api_version, kept.kind) = (k.api_version, k.kind))
           and not exists (select from inventory i join binding b on b.id = i.binding
                           where b.member = k.member and (i.api_version, i.kind) = (k.api_version, k.kind))
         returning api_version, kind",
    )
    .bind(&member.0)
    .bind(api_versions)
    .bind(kinds)
    .fetch_all(&mut *store.acquire().await?)
    .await?)
}
