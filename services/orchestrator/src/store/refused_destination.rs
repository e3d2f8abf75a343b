//! Destinations at which an app did not become ready, so that plans choose others for a while.

use drover_api::scheduling::{MemberKey, RefusedDestination};
use drover_store::StoreResult;
use sqlx::PgConnection;
use uuid::Uuid;

use super::binding::Binding;

/// Records that `copy` did not become ready where it was to go, and forgets what no longer counts. The last reason counts.
///
/// # Errors
/// The query failed.
pub async fn record(tx: &mut PgConnection, copy: &Binding, reason: &str) -> StoreResult<()> {
    sqlx::query("delete from refused_destination where refused_at < now() - interval '10 minutes'").execute(&mut *tx).await?;
    sqlx::query(
        "insert into refused_destination (dig_id, app, member, digest, reason) values ($1, $2, $3, $4, $5)
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

/// Refusals that still count: of the last ten minutes, of apps that run with the same objects as then.
///
/// # Errors
/// The query failed.
pub async fn recent(tx: &mut PgConnection) -> StoreResult<Vec<RefusedDestination>> {
    let rows: Vec<(Uuid, String, String, String)> = sqlx::query_as(
        "select distinct refused.dig_id, refused.app, refused.member, refused.reason from refused_destination refused
         join binding on binding.dig_id = refused.dig_id and binding.app = refused.app and binding.digest = refused.digest
         where binding.role = 'current' and refused_at >= now() - interval '10 minutes' order by 1, 2, 3",
    )
    .fetch_all(tx)
    .await?;
    Ok(rows
        .into_iter()
        .map(|(dig, app, member, reason)| RefusedDestination { dig, app, member: MemberKey(member), reason, refuses: false })
        .collect())
}
