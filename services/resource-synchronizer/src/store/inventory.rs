//! Which objects were applied, and which kinds may have leftovers in a member.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use drover_api::bindings::{DesiredBinding, DesiredState};
use drover_members::{Applied, ObjectId, Scaled};
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

/// Objects that are about to be applied for a binding.
pub struct Intention {
    /// The desired state that they follow from.
    pub desired: DesiredBinding,
    /// The objects, each with the digest of what is applied.
    pub objects: Vec<(Arc<ObjectId>, Arc<str>)>,
    /// Whether to return how many replicas the same app's workloads have in other members.
    pub elsewhere: bool,
}

/// The statement of [`intend`]. `offset 0`: each row is found by its key, whatever the planner knows of the tables. What is inserted has the same
/// order in all statements, so that two of them wait for each other at the first row.
const INTEND: &str = "with newest as (
        select asked.*
        from unnest($1::uuid[], $2::text[], $3::text[], $4::text[], $5::bigint[], $6::bool[], $7::bool[], $8::text[], $9::text[])
             with ordinality as asked (id, member, namespace, digest, fence, present, elsewhere, dig, app, number)
        cross join lateral (select member, namespace, digest, fence, present from binding where binding.id = asked.id offset 0) stored
        where (stored.member, stored.namespace, stored.digest, stored.fence, stored.present)
            = (asked.member, asked.namespace, asked.digest, asked.fence, asked.present)
    ), objects as (
        select newest.id as binding, newest.member, o.api_version, o.kind, o.namespace, o.name, o.digest
        from unnest($10::bigint[], $11::text[], $12::text[], $13::text[], $14::text[], $15::text[])
             as o (number, api_version, kind, namespace, name, digest)
        join newest using (number)
    ), kinds as (
        insert into member_kind (member, api_version, kind) select distinct member, api_version, kind from objects order by 1, 2, 3
        on conflict do nothing
    ), recorded as (
        insert into inventory (binding, api_version, kind, namespace, name, digest)
        select binding, api_version, kind, namespace, name, digest from objects order by 1, 2, 3, 4, 5
        on conflict (binding, api_version, kind, namespace, name) do update set digest = excluded.digest, uid = null
    ), running as (
        select newest.number, scaled.*
        from newest cross join lateral (select i.api_version, i.kind, i.namespace, i.name, max(i.replicas) as replicas
            from (select id from binding b
                where b.dig ->> 'id' = newest.dig and b.app = newest.app and b.member <> newest.member and b.present
                offset 0) b
            cross join lateral (select api_version, kind, namespace, name, replicas from inventory
                where inventory.binding = b.id and scaled_by is not null
                offset 0) i
            group by 1, 2, 3, 4
            offset 0) scaled
        where newest.elsewhere
    )
    select number, coalesce((select json_agg(running) from running where running.number = newest.number), '[]') from newest";

/// Records which objects are about to be applied, and that their members may have leftovers of these kinds from now on. Returns `None` for an
/// intention, and writes nothing of it, if the desired state has changed in the meantime.
///
/// Where it is asked for, the numbers of replicas are those that others have chosen in other members; the largest where there are several.
pub async fn intend(store: &Store, intentions: &[Intention]) -> StoreResult<Vec<Option<Replicas>>> {
    let of = |column: fn(&DesiredBinding) -> &str| intentions.iter().map(|one| column(&one.desired)).collect::<Vec<&str>>();
    let groups: Vec<String> = intentions.iter().map(|one| one.desired.dig.id.to_string()).collect();
    // Each with the number of its intention, from one: two of the same binding may come together, and only one is newest.
    let objects: Vec<(i64, &ObjectId, &str)> = (1..)
        .zip(intentions)
        .flat_map(|(number, one)| one.objects.iter().map(move |(object, digest)| (number, &**object, &**digest)))
        .collect();
    let column = |of: fn(&ObjectId) -> &str| objects.iter().map(|(_, object, _)| of(object)).collect::<Vec<&str>>();
    let rows: Vec<(i64, Json<Vec<Running>>)> = sqlx::query_as(INTEND)
        .bind(intentions.iter().map(|one| one.desired.id).collect::<Vec<Uuid>>())
        .bind(of(|desired| &desired.member.0))
        .bind(of(|desired| &desired.namespace))
        .bind(of(|desired| &desired.digest))
        .bind(intentions.iter().map(|one| one.desired.fence).collect::<Vec<i64>>())
        .bind(intentions.iter().map(|one| one.desired.state == DesiredState::Present).collect::<Vec<bool>>())
        .bind(intentions.iter().map(|one| one.elsewhere).collect::<Vec<bool>>())
        .bind(groups)
        .bind(of(|desired| &desired.app))
        .bind(objects.iter().map(|(number, ..)| *number).collect::<Vec<i64>>())
        .bind(column(|id| &id.api_version))
        .bind(column(|id| &id.kind))
        .bind(column(|id| &id.namespace))
        .bind(column(|id| &id.name))
        .bind(objects.iter().map(|(.., digest)| *digest).collect::<Vec<&str>>())
        .fetch_all(&mut *store.acquire().await?)
        .await?;
    let replicas = |Json(running): Json<Vec<Running>>| {
        let of = |Running { api_version, kind, namespace, name, replicas }| (ObjectId { api_version, kind, namespace, name }, replicas);
        running.into_iter().map(of).collect::<Replicas>()
    };
    let mut recorded: HashMap<i64, Replicas> = rows.into_iter().map(|(number, running)| (number, replicas(running))).collect();
    Ok((1..).zip(intentions).map(|(number, _)| recorded.remove(&number)).collect())
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

/// What a member answered when objects of a binding were applied.
pub struct Answered {
    pub binding: Uuid,
    pub answers: Vec<(Arc<ObjectId>, Applied)>,
}

/// The statement of [`applied`]. It is written as an insert that always finds its row, because the plan of an update from a list may read the
/// whole table.
const APPLIED: &str =
    "insert into inventory (binding, api_version, kind, namespace, name, digest, uid, generation, resource_version, scaled_by, replicas)
    select a.binding, a.api_version, a.kind, a.namespace, a.name, known.digest, a.uid, a.generation, a.resource_version, a.scaled_by,
        a.replicas
    from unnest($1::uuid[], $2::text[], $3::text[], $4::text[], $5::text[], $6::text[], $7::bigint[], $8::text[], $9::text[],
             $10::integer[])
         as a (binding, api_version, kind, namespace, name, uid, generation, resource_version, scaled_by, replicas)
    cross join lateral (select i.digest from inventory i
        where (i.binding, i.api_version, i.kind, i.namespace, i.name) = (a.binding, a.api_version, a.kind, a.namespace, a.name)
        offset 0) known
    order by 1, 2, 3, 4, 5
    on conflict (binding, api_version, kind, namespace, name) do update set uid = excluded.uid, generation = excluded.generation,
        resource_version = excluded.resource_version, scaled_by = excluded.scaled_by, replicas = excluded.replicas";

/// Records answers of members, of the objects that are still in the inventory.
pub async fn applied(store: &Store, answered: &[Answered]) -> StoreResult<()> {
    let all: Vec<(Uuid, &ObjectId, &Applied)> =
        answered.iter().flat_map(|one| one.answers.iter().map(|(object, applied)| (one.binding, &**object, applied))).collect();
    let ids = |of: fn(&ObjectId) -> &str| all.iter().map(|(_, object, _)| of(object)).collect::<Vec<&str>>();
    let scaled = || all.iter().map(|(.., applied)| applied.scaled.as_ref());
    sqlx::query(APPLIED)
        .bind(all.iter().map(|(binding, ..)| *binding).collect::<Vec<Uuid>>())
        .bind(ids(|id| &id.api_version))
        .bind(ids(|id| &id.kind))
        .bind(ids(|id| &id.namespace))
        .bind(ids(|id| &id.name))
        .bind(all.iter().map(|(.., applied)| &*applied.uid).collect::<Vec<&str>>())
        .bind(all.iter().map(|(.., applied)| applied.generation).collect::<Vec<Option<i64>>>())
        .bind(all.iter().map(|(.., applied)| applied.resource_version.as_str()).collect::<Vec<&str>>())
        .bind(scaled().map(|scaled| scaled.map(|scaled| scaled.by.as_str())).collect::<Vec<Option<&str>>>())
        .bind(scaled().map(|scaled| scaled.map(|scaled| scaled.replicas)).collect::<Vec<Option<i32>>>())
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

#[cfg(test)]
mod tests {
    use drover_store::StoreConfig;
    use sqlx::{AssertSqlSafe, Executor};

    use super::*;

    #[tokio::test]
    async fn statements_that_are_planned_once_find_rows_by_keys_although_the_tables_were_empty() {
        let db = drover_testkit::test_db().await;
        let config = StoreConfig::new("resource-synchronizer", db.url.clone());
        let store = Store::connect(&config, &[crate::store::migrations()]).await.unwrap().planned_once();
        let mut connection = store.acquire().await.unwrap();
        connection.execute("analyze").await.unwrap();
        let mode: String = sqlx::query_scalar("show plan_cache_mode").fetch_one(&mut *connection).await.unwrap();
        assert_eq!(mode, "force_generic_plan");
        for (statement, parameters, scans) in [(INTEND, 15, 3), (APPLIED, 10, 1)] {
            connection.execute(AssertSqlSafe(format!("prepare statement as {statement}"))).await.unwrap();
            let explain = format!("explain execute statement({})", vec!["null"; parameters].join(", "));
            let lines: Vec<String> = sqlx::query_scalar(AssertSqlSafe(explain)).fetch_all(&mut *connection).await.unwrap();
            let (plan, count) = (lines.join("\n"), |what: &str| lines.iter().filter(|line| line.contains(what)).count());
            assert_eq!((count("Index Scan using"), count("Index Cond"), count("Seq Scan")), (scans, scans, 0), "{plan}");
            connection.execute("deallocate statement").await.unwrap();
        }
    }
}
