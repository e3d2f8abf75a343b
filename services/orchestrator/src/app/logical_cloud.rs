//! Lifecycle of logical clouds. At level 0 nothing has to be created in the clusters, so every change takes effect at once. At level 1 a verb
//! says what each cluster is to have, and the task `clouds` brings it about.

use std::collections::BTreeSet;

use drover_api::grants::Grants;
use drover_api::scheduling::MemberKey;
use drover_resources::{TypedDocument, children, get, set_spec};
use drover_store::SealKey;
use sqlx::PgConnection;
use uuid::Uuid;

use super::cloud_objects::CloudParts;
use super::{Error, grants};
use crate::render::Rendered;
use crate::resources::cluster_reference::ClusterReferenceSpec;
use crate::resources::logical_cloud::LogicalCloudSpec;
use crate::resources::logical_cloud_parts::{ClusterQuotaSpec, UserPermissionSpec};
use crate::resources::{CLUSTER_QUOTA, CLUSTER_REFERENCE, LOGICAL_CLOUD, PROJECT, USER_PERMISSION};
use crate::store::cloud_copy::{self, CloudCopy};
use crate::store::deployment::{self, DeploymentState};
use crate::store::{bundle, cloud_action};

/// The logical cloud at this path.
///
/// # Errors
/// There is no such logical cloud, or a query failed.
pub async fn at(tx: &mut PgConnection, path: &str) -> Result<TypedDocument<LogicalCloudSpec>, Error> {
    get(tx, &LOGICAL_CLOUD, path).await?.ok_or_else(|| Error::NotFound { what: format!("logical cloud {path}") })
}

/// Instantiates a logical cloud. At level 0 that only changes its state, and an empty namespace becomes `default`, which EMCO's clients
/// then read. At level 1 the task `clouds` makes its namespace, quotas, roles and user in each cluster.
///
/// # Errors
/// It is instantiated or being terminated, it has no clusters, its documents are inconsistent or ask for more than it may have, or a query
/// failed.
pub async fn instantiate(tx: &mut PgConnection, key: &SealKey, cloud: &TypedDocument<LogicalCloudSpec>) -> Result<(), Error> {
    if state(&mut *tx, cloud.id).await? == DeploymentState::Instantiated {
        return Err(Error::NotNow(format!("The Logical Cloud is already instantiated: {}", cloud.path)));
    }
    if !cloud_copy::of_cloud(&mut *tx, cloud.id).await?.is_empty() {
        return Err(Error::NotNow(format!("The Logical Cloud can't be re-instantiated yet, it is being terminated: {}", cloud.path)));
    }
    if cloud.spec.is_admin() {
        if cloud.spec.namespace.is_empty() {
            let spec = LogicalCloudSpec { namespace: cloud.spec.namespace().to_owned(), ..cloud.spec.clone() };
            set_spec(&mut *tx, cloud.id, &spec).await?;
        }
    } else {
        make(&mut *tx, key, cloud).await?;
    }
    cloud_action::add(tx, cloud.id, DeploymentState::Instantiated).await?;
    Ok(())
}

/// Says what the clusters of a logical cloud of level 1 are to have, as its documents are now.
async fn make(tx: &mut PgConnection, key: &SealKey, cloud: &TypedDocument<LogicalCloudSpec>) -> Result<(), Error> {
    let references = children::<ClusterReferenceSpec>(&mut *tx, &CLUSTER_REFERENCE, cloud.id).await?;
    let members: BTreeSet<MemberKey> = references.iter().map(|reference| reference.spec.member()).collect();
    if members.is_empty() {
        return Err(Error::Inconsistent(vec!["No Cluster References associated".to_owned()]));
    }
    let project = name_of_project(cloud);
    let permissions = children::<UserPermissionSpec>(&mut *tx, &USER_PERMISSION, cloud.id).await?;
    let quotas = children::<ClusterQuotaSpec>(&mut *tx, &CLUSTER_QUOTA, cloud.id).await?;
    let parts = CloudParts { project: &project, cloud, permissions: &permissions, quotas: &quotas };
    if !parts.permits_own_namespace() {
        let words = "Level-1 Logical Clouds require a User Permission assigned to its primary namespace";
        return Err(Error::NotNow(format!("{words} {}", cloud.spec.namespace)));
    }
    let objects = parts.objects();
    // In its own namespace its user may have every right, since none of them reaches beyond it.
    let grants = Grants { escalation: true, ..cloud.spec.grants.clone().unwrap_or_default() };
    let refused = grants::refusals(&grants, cloud.spec.namespace(), &cloud.name, &objects);
    if !refused.is_empty() {
        return Err(Error::NotGranted(refused));
    }
    let rendered = Rendered::of(objects).map_err(|reason| Error::Inconsistent(vec![reason]))?;
    bundle::put(&mut *tx, key, &rendered).await?;

    let present = cloud_copy::of_cloud(&mut *tx, cloud.id).await?.into_iter().filter(|copy| copy.present);
    let (stay, go): (Vec<CloudCopy>, Vec<CloudCopy>) = present.partition(|copy| members.contains(&copy.member.0));
    let gone: Vec<Uuid> = go.iter().map(|copy| copy.id).collect();
    cloud_copy::remove(&mut *tx, &gone).await?;
    for member in members {
        let copy = CloudCopy {
            id: stay.iter().find(|copy| copy.member.0 == member).map_or_else(Uuid::now_v7, |copy| copy.id),
            cloud_id: cloud.id,
            project: project.clone(),
            cloud: cloud.name.clone(),
            member: cloud_copy::Member(member),
            namespace: cloud.spec.namespace.clone(),
            user_name: parts.user(),
            digest: rendered.digest.clone(),
            present: true,
            fence: None,
            settled: false,
            trouble: None,
            failed: false,
        };
        cloud_copy::put(&mut *tx, &copy).await?;
    }
    Ok(())
}

fn name_of_project(cloud: &TypedDocument<LogicalCloudSpec>) -> String {
    PROJECT.within(&cloud.path).and_then(|path| path.rsplit('/').next()).unwrap_or_default().to_owned()
}

/// Terminates a logical cloud. What a cloud of level 1 has in its clusters is removed by the task `clouds`.
///
/// # Errors
/// It is not instantiated, a deployment intent group runs in it or is being changed, or a query failed.
pub async fn terminate(tx: &mut PgConnection, cloud: &TypedDocument<LogicalCloudSpec>) -> Result<(), Error> {
    let used = deployment::using_cloud(&mut *tx, cloud.id).await?;
    if let Some(used) = used {
        return Err(Error::NotNow(format!("{used} runs in the logical cloud {}, or is being changed; terminate it first", cloud.path)));
    }
    match state(&mut *tx, cloud.id).await? {
        DeploymentState::Instantiated => undo(tx, cloud, DeploymentState::Terminated).await,
        DeploymentState::InstantiateStopped => Ok(cloud_action::add(tx, cloud.id, DeploymentState::Terminated).await?),
        DeploymentState::Terminated => Err(Error::NotNow(format!("The Logical Cloud has already been terminated: {}", cloud.path))),
        _ => Err(Error::NotNow(format!("The Logical Cloud is not instantiated: {}", cloud.path))),
    }
}

async fn undo(tx: &mut PgConnection, cloud: &TypedDocument<LogicalCloudSpec>, reached: DeploymentState) -> Result<(), Error> {
    let copies = cloud_copy::of_cloud(&mut *tx, cloud.id).await?;
    cloud_copy::remove(&mut *tx, &copies.iter().map(|copy| copy.id).collect::<Vec<_>>()).await?;
    Ok(cloud_action::add(tx, cloud.id, reached).await?)
}

/// Takes over what was changed in its documents since it was instantiated. At level 0 cluster references count as soon as they are written,
/// so nothing is left to do.
///
/// # Errors
/// It is not instantiated, or as for [`instantiate`].
pub async fn update(tx: &mut PgConnection, key: &SealKey, cloud: &TypedDocument<LogicalCloudSpec>) -> Result<(), Error> {
    match state(&mut *tx, cloud.id).await? {
        DeploymentState::Instantiated if cloud.spec.is_admin() => Ok(()),
        DeploymentState::Instantiated => make(tx, key, cloud).await,
        _ => Err(Error::NotNow(format!("The Logical Cloud is not instantiated: {}", cloud.path))),
    }
}

/// Stops an instantiation that is going on or has failed, and undoes it. A termination is not stopped: it only removes.
///
/// # Errors
/// Nothing is going on, or a query failed.
pub async fn stop(tx: &mut PgConnection, cloud: &TypedDocument<LogicalCloudSpec>) -> Result<(), Error> {
    let (state, copies) = (state(&mut *tx, cloud.id).await?, cloud_copy::of_cloud(&mut *tx, cloud.id).await?);
    let open = copies.iter().any(|copy| copy.present && !copy.settled);
    if state == DeploymentState::Instantiated && open {
        return undo(tx, cloud, DeploymentState::InstantiateStopped).await;
    }
    Err(Error::NotNow(format!("LogicalCloud is not instantiating or terminating: {} is {}", cloud.path, deployed(state, &copies))))
}

/// How far a logical cloud is, in EMCO's words.
pub fn deployed(state: DeploymentState, copies: &[CloudCopy]) -> String {
    let word = match state {
        DeploymentState::Instantiated if copies.iter().any(|copy| copy.failed) => "InstantiateFailed",
        DeploymentState::Instantiated if copies.iter().any(|copy| !copy.settled) => "Instantiating",
        DeploymentState::Terminated | DeploymentState::InstantiateStopped if !copies.is_empty() => "Terminating",
        DeploymentState::InstantiateStopped => "Terminated",
        state => state.as_str(),
    };
    word.to_owned()
}

/// Refuses to deploy into a logical cloud of level 1 that is not there, or not in all of its clusters.
///
/// # Errors
/// It is not, or a query failed.
pub async fn require(tx: &mut PgConnection, cloud: &TypedDocument<LogicalCloudSpec>, members: &[MemberKey]) -> Result<(), Error> {
    if cloud.spec.is_admin() {
        return Ok(());
    }
    let (state, copies) = (state(&mut *tx, cloud.id).await?, cloud_copy::of_cloud(&mut *tx, cloud.id).await?);
    if state != DeploymentState::Instantiated {
        return Err(Error::NotNow(format!("The Logical Cloud is not instantiated: {}", cloud.path)));
    }
    let there = |member: &MemberKey| copies.iter().any(|copy| copy.present && copy.settled && copy.member.0 == *member);
    match members.iter().find(|member| !there(member)) {
        None => Ok(()),
        Some(member) => {
            let how = deployed(state, &copies);
            Err(Error::NotNow(format!(
                "The Logical Cloud {} is not there on {member} yet ({how}); update it if that was added",
                cloud.path
            )))
        }
    }
}

/// Refuses changes of a logical cloud while it is instantiated: its deletion, and what its clusters cannot follow.
///
/// # Errors
/// It is instantiated or being terminated, or a query failed.
pub async fn guard(
    tx: &mut PgConnection,
    cloud: Uuid,
    before: Option<&LogicalCloudSpec>,
    after: Option<&LogicalCloudSpec>,
) -> Result<(), Error> {
    let copies = cloud_copy::of_cloud(&mut *tx, cloud).await?;
    let state = state(&mut *tx, cloud).await?;
    let same = |before: &LogicalCloudSpec, after: &LogicalCloudSpec| {
        (&before.namespace, &before.level, &before.user) == (&after.namespace, &after.level, &after.user)
    };
    match (before, after) {
        (_, None) if state == DeploymentState::Instantiated => {
            Err(Error::NotNow("The Logical Cloud is instantiated, please terminate first".to_owned()))
        }
        (_, None) if !copies.is_empty() => Err(Error::NotNow("The Logical Cloud can't be deleted yet, it is being terminated".to_owned())),
        (Some(before), Some(after)) if !copies.is_empty() && !same(before, after) => {
            let what = "namespace, level and user cannot be changed";
            Err(Error::NotNow(format!("The Logical Cloud is instantiated, please terminate first: {what}")))
        }
        _ => Ok(()),
    }
}

/// The state of a logical cloud: that of the latest entry in its history.
///
/// # Errors
/// The query failed, or the stored state is unknown.
pub async fn state(tx: &mut PgConnection, cloud: Uuid) -> Result<DeploymentState, Error> {
    let last = cloud_action::of_cloud(tx, cloud).await?.pop();
    last.map_or(Ok(DeploymentState::Created), |action| action.state.parse().map_err(Error::Internal))
}
