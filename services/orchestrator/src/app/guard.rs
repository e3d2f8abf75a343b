//! Refuses changes of documents while an operation uses them, and changes that contradict what is deployed.

use std::sync::Arc;

use async_trait::async_trait;
use drover_api::traffic::GatewayRef;
use drover_resources::{Change, Document, DocumentKind, Hooks, TypedDocument, Verb};
use drover_service::{Problem, codes};
use drover_store::Tx;
use sqlx::PgConnection;
use uuid::Uuid;

use super::{Error, logical_cloud, terms};
use crate::peers::Migration;
use crate::resources::controllers::generic::GENERIC_INTENT;
use crate::resources::controllers::hpa::HPA_INTENT;
use crate::resources::controllers::traffic::{INBOUND_SERVER_INTENT, TRAFFIC_GROUP_INTENT};
use crate::resources::deployment_intent_group::DeploymentIntentGroupSpec;
use crate::resources::logical_cloud::LogicalCloudSpec;
use crate::resources::profile::ProfileSpec;
use crate::resources::route::RouteSpec;
use crate::resources::{
    APP, CLUSTER_QUOTA, COMPOSITE_APP, COMPOSITE_PROFILE, DEPENDENCY, DIG, GROUP_INTENT, LOGICAL_CLOUD, PROFILE, PROJECT, ROUTE,
};
use crate::store::deployment::{self, DeploymentState};
use crate::store::{cloud_action, hold, route};
use crate::traffic::Traffic;

/// The checks of orchestrator before a document is written or deleted.
pub struct Guards {
    /// Its documents are below projects and groups, so it is asked before one of these is deleted.
    pub migration: Arc<dyn Migration>,
    /// Is told of changed routes.
    pub traffic: Traffic,
}

#[async_trait]
impl Hooks for Guards {
    async fn committed(&self, change: &Change<'_>) {
        if [ROUTE.name, INBOUND_SERVER_INTENT.name, GROUP_INTENT.name].contains(&change.kind.name) {
            self.traffic.nudge();
        }
    }

    async fn before(&self, kind: &'static DocumentKind, path: &str, delete: bool) -> Result<(), Problem> {
        let collection = match kind.name {
            _ if !delete => return Ok(()),
            name if name == DIG.name => "migration-intents",
            name if name == PROJECT.name => "migration-policies",
            _ => return Ok(()),
        };
        if self.migration.has_documents(&format!("{path}/{collection}")).await? {
            return Err(drover_resources::ResourceError::HasChildren.into());
        }
        Ok(())
    }

    async fn guard(&self, tx: &mut Tx, change: &Change<'_>) -> Result<(), Problem> {
        if !read_at_approval(change)
            && let Some(holder) = holder(tx, change).await?
        {
            return Err(Error::Busy { holder }.into());
        }
        if change.kind.name == DIG.name {
            group(tx, change).await?;
        } else if change.kind.name == ROUTE.name {
            one_route_per_address(tx, change).await?;
        } else if change.kind.name == PROFILE.name {
            one_profile_per_app(tx, change).await?;
        } else if change.kind.name == LOGICAL_CLOUD.name && change.verb != Verb::Create {
            cloud(tx, change).await?;
        } else if change.kind.name == CLUSTER_QUOTA.name && change.verb == Verb::Create {
            quota(tx, change).await?;
        }
        Ok(())
    }
}

/// A logical cloud that is instantiated stays as its clusters have it.
async fn cloud(tx: &mut PgConnection, change: &Change<'_>) -> Result<(), Problem> {
    let spec = |document: Option<&Document>| document.map(|document| document.spec::<LogicalCloudSpec>()).transpose();
    let (before, after) = (spec(change.before).map_err(Problem::internal)?, spec(change.after).map_err(Problem::internal)?);
    logical_cloud::guard(&mut *tx, change.id(), before.as_ref(), after.as_ref()).await?;
    if change.verb == Verb::Delete {
        // As long as a group names it, its reference prevents this.
        cloud_action::delete(tx, change.id()).await.map_err(Error::from)?;
    }
    Ok(())
}

/// Quotas are those of a namespace, which only clouds of level 1 have of their own.
async fn quota(tx: &mut PgConnection, change: &Change<'_>) -> Result<(), Problem> {
    let Some(path) = LOGICAL_CLOUD.within(change.path) else { return Ok(()) };
    let cloud: Option<TypedDocument<LogicalCloudSpec>> = drover_resources::get(tx, &LOGICAL_CLOUD, path).await?;
    match cloud {
        Some(cloud) if cloud.spec.is_admin() => Err(codes::INVALID.problem("Cluster Quotas not allowed for Logical Cloud Level 0")),
        _ => Ok(()),
    }
}

/// Whether the document is one of a controller: what it says is read when the group is approved or updated, so no running operation uses it, and
/// EMCO's scripts write such documents at any time.
fn read_at_approval(change: &Change<'_>) -> bool {
    const ROOTS: [&DocumentKind; 3] = [&TRAFFIC_GROUP_INTENT, &GENERIC_INTENT, &HPA_INTENT];
    change.kind.kept.is_some() || ROOTS.iter().any(|root| root.within(change.path).is_some())
}

/// The running operation that uses the document.
async fn holder(tx: &mut PgConnection, change: &Change<'_>) -> Result<Option<Uuid>, Error> {
    let below_app = [APP.name, DEPENDENCY.name, COMPOSITE_PROFILE.name, PROFILE.name].contains(&change.kind.name);
    let groups = if let Some(group) = DIG.within(change.path) {
        group.to_owned()
    } else if let Some(composite_app) = COMPOSITE_APP.within(change.path).filter(|_| below_app) {
        format!("{composite_app}/{}/", DIG.segment)
    } else {
        return Ok(None);
    };
    Ok(hold::of_path(tx, &groups).await?)
}

/// A group can be replaced only while it is Created, except for its override values, which the next approve or update uses. It can be
/// deleted only while none of its apps runs.
async fn group(tx: &mut PgConnection, change: &Change<'_>) -> Result<(), Problem> {
    let state = deployment::load(&mut *tx, change.id(), true).await.map_err(Error::from)?.state;
    match change.verb {
        Verb::Replace if state != DeploymentState::Created && !changes_only_values(change)? => {
            Err(Error::WrongState { verb: "a change", state, allowed: &["Created"] }.into())
        }
        Verb::Delete if state == DeploymentState::Instantiated => {
            Err(Error::WrongState { verb: "deletion", state, allowed: &["Created", "Approved", "Terminated"] }.into())
        }
        _ => Ok(()),
    }
}

fn changes_only_values(change: &Change<'_>) -> Result<bool, Problem> {
    let (Some(before), Some(after)) = (change.before, change.after) else { return Ok(false) };
    let before = before.spec::<DeploymentIntentGroupSpec>().map_err(Problem::internal)?;
    let after = after.spec::<DeploymentIntentGroupSpec>().map_err(Problem::internal)?;
    Ok(before == DeploymentIntentGroupSpec { override_values: before.override_values.clone(), ..after })
}

async fn one_profile_per_app(tx: &mut PgConnection, change: &Change<'_>) -> Result<(), Problem> {
    let (Some(after), Some(parent)) = (change.after, COMPOSITE_PROFILE.within(change.path)) else { return Ok(()) };
    let app = after.spec::<ProfileSpec>().map_err(Problem::internal)?.app;
    // The byte after '/' is '0': all paths below are in this range of the index on kind and path.
    let sql = "select exists (select from resource
        where kind = $1 and path > $2::text || '/' and path < $2 || '0' and path <> $3 and spec ->> 'app' = $4)";
    let taken: bool =
        sqlx::query_scalar(sql).bind(PROFILE.name).bind(parent).bind(change.path).bind(&app).fetch_one(tx).await.map_err(Error::from)?;
    if taken {
        return Err(codes::ALREADY_EXISTS
            .problem("App already has an AppProfile")
            .reason(format!("the app {app} has a profile below {parent}")));
    }
    Ok(())
}

/// Users may change the weights of a gateway only where their logical cloud lets them deploy.
async fn gateway_is_in_the_cloud(tx: &mut PgConnection, change: &Change<'_>, gateway: &GatewayRef) -> Result<(), Problem> {
    let path = DIG.within(change.path).unwrap_or_default();
    let known: Option<TypedDocument<DeploymentIntentGroupSpec>> = drover_resources::get(&mut *tx, &DIG, path).await?;
    let Some(known) = known else { return Ok(()) };
    let group = super::group::by_id(&mut *tx, known.id).await?;
    let cloud = terms::cloud(tx, &group).await?;
    let reason = if !cloud.members.iter().any(|member| member.includes(&gateway.cluster)) {
        format!("spec.gateway: the cluster {} is not in the logical cloud {}", gateway.cluster, cloud.document.name)
    } else if (!cloud.document.spec.is_admin() || cloud.document.spec.act_as.is_some())
        && gateway.namespace != cloud.document.spec.namespace()
    {
        format!("spec.gateway: the namespace {} is not that of the logical cloud {}", gateway.namespace, cloud.document.name)
    } else {
        return Ok(());
    };
    Err(codes::INVALID.problem("The HTTPRoute of the gateway is outside of the group's logical cloud").reason(reason))
}

/// An address leads to one app, whosever it is. With a gateway it is not Drover's.
async fn one_route_per_address(tx: &mut PgConnection, change: &Change<'_>) -> Result<(), Problem> {
    let Some(after) = change.after else { return Ok(()) };
    let wanted = after.spec::<RouteSpec>().map_err(Problem::internal)?;
    if let Some(gateway) = &wanted.gateway {
        return gateway_is_in_the_cloud(tx, change, gateway).await;
    }
    let others = route::on_port(&mut *tx, wanted.port, change.path).await.map_err(Error::from)?;
    if let Some((path, other)) = others.into_iter().find(|(_, other)| wanted.excludes(other)) {
        let reason = if other.protocol != wanted.protocol {
            format!("{path} uses port {} for {}", wanted.port, other.protocol.as_str())
        } else {
            format!("{path} has it")
        };
        let detail = format!("The address {} is taken; choose another host name or port", wanted.address());
        return Err(codes::ALREADY_EXISTS.problem(detail).reason(reason));
    }
    Ok(())
}
