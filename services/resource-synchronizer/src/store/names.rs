//! The rows of stand-ins, which follow from those of copies ([`crate::names`]).

use std::collections::BTreeSet;

use drover_api::bindings::DesiredBinding;
use drover_scheduling::{DigRef, MemberKey};
use drover_store::{Store, StoreResult, Tx};
use sqlx::types::Json;
use uuid::Uuid;

use super::bindings::{Raw, Row, columns};

/// A change of a stand-in.
#[derive(Clone, Debug, PartialEq)]
pub enum Change {
    /// It is to be present like this.
    Come(Box<DesiredBinding>),
    /// It is to go.
    Go(Uuid, MemberKey),
    /// It is gone, and so is its row.
    Forget(Uuid, MemberKey),
}

impl Change {
    /// Id and member of the stand-in.
    pub fn whose(&self) -> (Uuid, &MemberKey) {
        match self {
            Self::Come(wanted) => (wanted.id, &wanted.member),
            Self::Go(id, member) | Self::Forget(id, member) => (*id, member),
        }
    }
}

/// Begins to change the stand-ins of a project. Only one transaction at a time does.
pub async fn begin(store: &Store, project: &str) -> StoreResult<Tx> {
    let mut tx = store.begin().await?;
    sqlx::query("select pg_advisory_xact_lock(hashtextextended('names/' || $1, 0))").bind(project).execute(&mut *tx).await?;
    Ok(tx)
}

/// All rows of a project.
pub async fn of_project(tx: &mut Tx, project: &str) -> StoreResult<Vec<Row>> {
    let rows: Vec<Raw> = sqlx::query_as(concat!("select ", columns!(), " from binding where dig ->> 'project' = $1 order by id"))
        .bind(project)
        .fetch_all(&mut **tx)
        .await?;
    Ok(rows.into_iter().map(Row::from).collect())
}

/// The projects in which some copy has names elsewhere, or had.
pub async fn projects(store: &Store) -> StoreResult<Vec<String>> {
    let sql = "select distinct dig ->> 'project' from binding where names or stand_in";
    Ok(sqlx::query_scalar(sql).fetch_all(&mut *store.acquire().await?).await?)
}

/// The digests of bundles of a project's copies that export Services.
pub async fn exporting(tx: &mut Tx, project: &str) -> StoreResult<BTreeSet<String>> {
    let sql = "select distinct digest from bundle join binding using (digest) where exports and dig ->> 'project' = $1";
    let digests: Vec<String> = sqlx::query_scalar(sql).bind(project).fetch_all(&mut **tx).await?;
    Ok(digests.into_iter().collect())
}

/// The stand-ins of all apps that export Services, if the bundle with this digest does; otherwise none.
pub async fn stand_ins_of_exports(store: &Store, digest: &str) -> StoreResult<Vec<(Uuid, MemberKey)>> {
    let rows: Vec<(Uuid, String)> = sqlx::query_as(
        "select id, member from binding join bundle using (digest)
         where stand_in and exports and (select exports from bundle where digest = $1)",
    )
    .bind(digest)
    .fetch_all(&mut *store.acquire().await?)
    .await?;
    Ok(rows.into_iter().map(|(id, member)| (id, MemberKey(member))).collect())
}

/// A copy whose app exports a Service.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Exporter {
    /// Id of its group; a later group has a larger one.
    pub dig: Uuid,
    pub app: String,
    /// Name of its group, for people.
    pub group: String,
    pub member: MemberKey,
}

/// The copies whose apps export the Service of this name. Copies of which the export is not applied yet do not count.
pub async fn exporters(store: &Store, namespace: &str, name: &str) -> StoreResult<Vec<Exporter>> {
    let rows: Vec<(Json<DigRef>, String, String)> = sqlx::query_as(
        "select b.dig, b.app, b.member from inventory i join binding b on b.id = i.binding
         where i.kind = 'ServiceExport' and i.api_version like 'multicluster.x-k8s.io/%' and i.namespace = $1 and i.name = $2
             and b.present and not b.stand_in",
    )
    .bind(namespace)
    .bind(name)
    .fetch_all(&mut *store.acquire().await?)
    .await?;
    let exporter = |(Json(dig), app, member): (Json<DigRef>, String, String)| Exporter {
        dig: dig.id,
        app,
        group: format!("{}/{}", dig.project, dig.name),
        member: MemberKey(member),
    };
    Ok(rows.into_iter().map(exporter).collect())
}

/// Writes one change.
pub async fn change(tx: &mut Tx, change: &Change) -> StoreResult<()> {
    let query = match change {
        Change::Come(wanted) => sqlx::query(
            "insert into binding (id, dig, app, member, namespace, digest, present, fence, grants, act_as, stand_in)
             values ($1, $2, $3, $4, $5, $6, true, 1, $7, $8, true)
             on conflict (id) do update set namespace = $5, digest = $6, present = true, gone = false, grants = $7, act_as = $8,
                 fence = binding.fence + 1, updated_at = now()",
        )
        .bind(wanted.id)
        .bind(Json(&wanted.dig))
        .bind(&wanted.app)
        .bind(&wanted.member.0)
        .bind(&wanted.namespace)
        .bind(&*wanted.digest)
        .bind(wanted.grants.as_ref().map(Json))
        .bind(wanted.act_as.as_deref()),
        Change::Go(id, _) => {
            sqlx::query("update binding set present = false, fence = fence + 1, updated_at = now() where id = $1 and stand_in").bind(*id)
        }
        Change::Forget(id, _) => sqlx::query("delete from binding where id = $1 and stand_in and gone and not present").bind(*id),
    };
    query.execute(&mut **tx).await?;
    Ok(())
}

/// The stand-ins of the apps of these copies.
pub async fn concerned(store: &Store, copies: &[Uuid]) -> StoreResult<Vec<(Uuid, MemberKey)>> {
    let rows: Vec<(Uuid, String)> = sqlx::query_as(
        "select distinct s.id, s.member from binding c join binding s on s.dig ->> 'id' = c.dig ->> 'id' and s.app = c.app
         where c.id = any($1) and not c.stand_in and s.stand_in",
    )
    .bind(copies)
    .fetch_all(&mut *store.acquire().await?)
    .await?;
    Ok(rows.into_iter().map(|(id, member)| (id, MemberKey(member))).collect())
}

/// The copies of an app that are to be present, with their members.
pub async fn copies(store: &Store, dig: Uuid, app: &str) -> StoreResult<Vec<(Uuid, MemberKey)>> {
    let rows: Vec<(Uuid, String)> =
        sqlx::query_as("select id, member from binding where dig ->> 'id' = $1 and app = $2 and present and not stand_in order by id")
            .bind(dig.to_string())
            .bind(app)
            .fetch_all(&mut *store.acquire().await?)
            .await?;
    Ok(rows.into_iter().map(|(id, member)| (id, MemberKey(member))).collect())
}
