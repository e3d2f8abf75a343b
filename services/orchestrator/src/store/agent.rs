//! Rollouts of agents, their copies, and the deployment intent groups that copies are.

use drover_api::agents::AgentOrder;
use drover_api::scheduling::{DigRef, MemberKey};
use drover_store::{StoreResult, Timestamp};
use sqlx::types::Json;
use sqlx::{FromRow, PgConnection};
use uuid::Uuid;

/// Kind of the rows of `resource` that stand for the groups of agents. No document of users has it.
pub const KIND: &str = "agent-copy";
/// Name of the project of agents. No project of users can have it.
pub const PROJECT: &str = drover_api::scheduling::AGENTS_PROJECT;

/// A rollout.
#[derive(Clone, Debug, PartialEq, FromRow)]
pub struct Rollout {
    pub agent: String,
    /// Generation of the document whose order is rolled out.
    pub generation: i64,
    #[sqlx(json)]
    pub spec: AgentOrder,
    /// The last order that reached all clusters.
    #[sqlx(json(nullable))]
    pub good: Option<AgentOrder>,
    /// `rolling`, `done` or `stopped`.
    pub state: String,
    /// What it waits for, or why it was stopped.
    pub reason: Option<String>,
}

/// An agent in a cluster.
#[derive(Clone, Debug, PartialEq, FromRow)]
pub struct CopyRow {
    pub member: String,
    pub digest: Option<String>,
    pub version: Option<String>,
    pub healthy_since: Option<Timestamp>,
    pub tried_digest: Option<String>,
    pub tried_version: Option<String>,
    pub operation: Option<Uuid>,
    pub tried_at: Option<Timestamp>,
    pub failed: Option<String>,
    pub removing: bool,
    pub busy: bool,
    /// The copy that serves.
    pub binding: Option<Uuid>,
}

/// The group that an agent in a cluster is.
pub fn group(agent: &str, member: &MemberKey) -> DigRef {
    DigRef {
        id: Uuid::new_v5(&Uuid::NAMESPACE_OID, format!("drover-agent/{agent}/{member}").as_bytes()),
        project: PROJECT.to_owned(),
        composite_app: agent.to_owned(),
        version: "v1".to_owned(),
        name: member.0.clone(),
    }
}

/// Makes the row that the tables of lifecycle refer to, unless it is there.
///
/// # Errors
/// The query failed.
pub async fn put_group(tx: &mut PgConnection, agent: &str, group: &DigRef) -> StoreResult<()> {
    sqlx::query(
        "insert into resource (id, kind, path, name, metadata, spec) values ($1, $2, $3, $4, '{}', '{}') on conflict (id) do nothing",
    )
    .bind(group.id)
    .bind(KIND)
    .bind(format!("/agents/{agent}/{}", group.name))
    .bind(&group.name)
    .execute(tx)
    .await?;
    Ok(())
}

/// All rollouts, by name.
///
/// # Errors
/// The query failed.
pub async fn rollouts(tx: &mut PgConnection) -> StoreResult<Vec<Rollout>> {
    Ok(sqlx::query_as("select agent, generation, spec, good, state, reason from agent_rollout order by agent").fetch_all(tx).await?)
}

/// Begins to roll out an order: attempts that failed before count no more.
///
/// # Errors
/// The query failed.
pub async fn begin(tx: &mut PgConnection, agent: &str, generation: i64, order: &AgentOrder) -> StoreResult<()> {
    sqlx::query(
        "insert into agent_rollout (agent, generation, spec) values ($1, $2, $3)
        on conflict (agent) do update set generation = excluded.generation, spec = excluded.spec, state = 'rolling', reason = null",
    )
    .bind(agent)
    .bind(generation)
    .bind(Json(order))
    .execute(&mut *tx)
    .await?;
    sqlx::query("update agent_copy set failed = null where agent = $1 and not busy").bind(agent).execute(tx).await?;
    Ok(())
}

/// Sets the state of a rollout and what it waits for, or why it was stopped. `good`: the order reached all clusters.
///
/// # Errors
/// The query failed.
pub async fn set_state(
    tx: &mut PgConnection,
    agent: &str,
    state: &str,
    reason: Option<&str>,
    good: Option<&AgentOrder>,
) -> StoreResult<()> {
    sqlx::query(
        "update agent_rollout set state = $2, reason = $3, good = coalesce($4, good)
        where agent = $1 and (state, reason, good) is distinct from ($2, $3, coalesce($4, good))",
    )
    .bind(agent)
    .bind(state)
    .bind(reason)
    .bind(good.map(Json))
    .execute(tx)
    .await?;
    Ok(())
}

/// Deletes a rollout that has no copies.
///
/// # Errors
/// The query failed.
pub async fn end(tx: &mut PgConnection, agent: &str) -> StoreResult<()> {
    sqlx::query("delete from agent_rollout where agent = $1 and not exists (select from agent_copy where agent = $1)")
        .bind(agent)
        .execute(tx)
        .await?;
    Ok(())
}

/// The copies of an agent, by cluster.
///
/// # Errors
/// The query failed.
pub async fn copies(tx: &mut PgConnection, agent: &str) -> StoreResult<Vec<CopyRow>> {
    Ok(sqlx::query_as(
        "select member, digest, version, healthy_since, tried_digest, tried_version, agent_copy.operation, tried_at, failed, removing, busy,
            serving.id as binding
        from agent_copy left join lateral (select id from binding where dig_id = agent_copy.dig_id and role = 'current' limit 1) serving on true
        where agent = $1 order by member",
    )
    .bind(agent)
    .fetch_all(tx)
    .await?)
}

/// Makes the rows of copies that are still to be.
///
/// # Errors
/// The query failed.
pub async fn expect(tx: &mut PgConnection, agent: &str, members: &[MemberKey]) -> StoreResult<()> {
    let ids: Vec<Uuid> = members.iter().map(|member| group(agent, member).id).collect();
    let members: Vec<&str> = members.iter().map(|member| member.0.as_str()).collect();
    sqlx::query(
        "insert into agent_copy (agent, member, dig_id) select $1, member, dig from unnest($2::text[], $3::uuid[]) as wanted (member, dig)
        on conflict do nothing",
    )
    .bind(agent)
    .bind(members)
    .bind(ids)
    .execute(tx)
    .await?;
    Ok(())
}

/// An attempt to change a copy.
#[derive(Clone, Copy, Debug)]
pub struct Attempt<'a> {
    pub operation: Uuid,
    /// `None`: it is removed.
    pub to: Option<(&'a str, &'a str)>,
}

/// Records that an operation changes a copy, to this digest and version.
///
/// # Errors
/// The query failed.
pub async fn tried(tx: &mut PgConnection, agent: &str, member: &MemberKey, attempt: &Attempt<'_>) -> StoreResult<()> {
    let (digest, version) = attempt.to.unzip();
    sqlx::query(
        "update agent_copy set operation = $3, tried_digest = $4, tried_version = $5, tried_at = now(), failed = null, busy = true,
            removing = $6 where agent = $1 and member = $2",
    )
    .bind(agent)
    .bind(&member.0)
    .bind(attempt.operation)
    .bind(digest)
    .bind(version)
    .bind(attempt.to.is_none())
    .execute(tx)
    .await?;
    Ok(())
}

/// Records how the operation of a copy ended; `failed`: with this reason.
///
/// # Errors
/// The query failed.
pub async fn ended(tx: &mut PgConnection, agent: &str, copy: &CopyRow, failed: Option<&str>) -> StoreResult<()> {
    sqlx::query(
        "update agent_copy set busy = false, failed = $4,
            digest = case when $4::text is null then tried_digest else digest end,
            version = case when $4::text is null then tried_version else version end,
            healthy_since = case when $4::text is null then null else healthy_since end
        where agent = $1 and member = $2 and operation = $3 and busy",
    )
    .bind(agent)
    .bind(&copy.member)
    .bind(copy.operation)
    .bind(failed)
    .execute(tx)
    .await?;
    Ok(())
}

/// Records whether a copy is ready.
///
/// # Errors
/// The query failed.
pub async fn set_healthy(tx: &mut PgConnection, agent: &str, member: &str, healthy: bool) -> StoreResult<()> {
    sqlx::query(
        "update agent_copy set healthy_since = case when $3 then now() end
        where agent = $1 and member = $2 and (healthy_since is not null) is distinct from $3",
    )
    .bind(agent)
    .bind(member)
    .bind(healthy)
    .execute(tx)
    .await?;
    Ok(())
}

/// Deletes a copy that is gone, with its group.
///
/// # Errors
/// The query failed.
pub async fn forget(tx: &mut PgConnection, agent: &str, member: &MemberKey) -> StoreResult<()> {
    sqlx::query("delete from agent_copy where agent = $1 and member = $2").bind(agent).bind(&member.0).execute(&mut *tx).await?;
    sqlx::query("delete from resource where id = $1 and kind = $2").bind(group(agent, member).id).bind(KIND).execute(tx).await?;
    Ok(())
}

/// Whether a group is an agent's.
///
/// # Errors
/// The query failed.
pub async fn is_agent(tx: &mut PgConnection, dig: Uuid) -> StoreResult<bool> {
    Ok(sqlx::query_scalar("select exists (select from resource where id = $1 and kind = $2)").bind(dig).bind(KIND).fetch_one(tx).await?)
}

/// The image of an agent as it was asked for last, with its tag; `None` if no cluster is to run it.
///
/// # Errors
/// The query failed.
pub async fn image(tx: &mut PgConnection, agent: &str) -> StoreResult<Option<String>> {
    Ok(sqlx::query_scalar("select (spec ->> 'image') || ':' || (spec ->> 'version') from agent_rollout where agent = $1")
        .bind(agent)
        .fetch_optional(tx)
        .await?)
}
