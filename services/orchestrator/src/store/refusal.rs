//! Members that refused the objects of an app, for what would be decided now. Plans and operations ask the members themselves.

use drover_api::scheduling::{MemberKey, RefusedDestination};
use drover_store::{StoreResult, Timestamp};
use sqlx::PgConnection;
use uuid::Uuid;

use super::binding::Binding;

/// Records that the member of `copy` refused its objects, and forgets what was refused of other objects of the app. The last reason counts.
///
/// # Errors
/// The query failed.
pub async fn record(tx: &mut PgConnection, copy: &Binding, reason: &str) -> StoreResult<()> {
    sqlx::query("delete from refusal where dig_id = $1 and app = $2 and digest <> $3")
        .bind(copy.dig.id)
        .bind(&copy.app)
        .bind(&copy.digest)
        .execute(&mut *tx)
        .await?;
    sqlx::query(
        "insert into refusal (dig_id, app, member, digest, reason) values ($1, $2, $3, $4, $5)
         on conflict (dig_id, app, member) do update set digest = excluded.digest, reason = excluded.reason, refused_at = now()",
    )
    .bind(copy.dig.id)
    .bind(&copy.app)
    .bind(&copy.member.0)
    .bind(&copy.digest)
    .bind(reason)
    .execute(tx)
    .await?;
    Ok(())
}

/// What members refused of the apps of a group, or of all groups of a composite app, as long as the apps have these objects.
///
/// # Errors
/// The query failed.
pub async fn remembered(tx: &mut PgConnection, project: &str, group: &str) -> StoreResult<Vec<RefusedDestination>> {
    let rows: Vec<(Uuid, String, String, String, Timestamp)> = sqlx::query_as(
        "select dig_id, app, member, reason, refused_at from refusal join deployment_app using (dig_id, app, digest)
         join resource on resource.id = dig_id
         where split_part(path, '/', 4) = $1 and $2 in (split_part(path, '/', 6), split_part(path, '/', 9)) order by 1, 2, 3",
    )
    .bind(project)
    .bind(group)
    .fetch_all(tx)
    .await?;
    let refusal = |(dig, app, member, reason, at): (Uuid, String, String, String, Timestamp)| {
        let reason = format!("it refused the objects at {}: {reason}", at.0.strftime("%Y-%m-%dT%H:%M:%SZ"));
        RefusedDestination { dig, app, member: MemberKey(member), reason, refuses: true }
    };
    Ok(rows.into_iter().map(refusal).collect())
}
