//! What a logical cloud of level 1 has in its clusters, as the status shows it, and the kubeconfigs of its user.

use drover_api::members::UserOrder;
use drover_api::status::{AppClusters, AppEntry, AppResources, ClusterStatus, DigStatus};
use sqlx::PgConnection;
use uuid::Uuid;

use super::status::unseen;
use super::status_view::{AppCopy, StatusQuery};
use super::{App, Error};
use crate::store::binding::Role;
use crate::store::bundle;
use crate::store::cloud_copy::{self, CloudCopy};

/// How the parts of a logical cloud are named as an app.
const APP: &str = "logical-cloud";

/// The parts of a logical cloud in its clusters.
pub struct CloudView {
    pub copies: Vec<CloudCopy>,
    shown: Vec<AppCopy>,
}

/// What a status query shows of them.
#[derive(Default)]
pub struct CloudShown {
    pub deployed_counts: std::collections::BTreeMap<String, usize>,
    pub ready_counts: std::collections::BTreeMap<String, usize>,
    pub clusters: Vec<ClusterStatus>,
    pub clusters_by_app: Option<Vec<AppClusters>>,
    pub resources_by_app: Option<Vec<AppResources>>,
}

impl App {
    /// Reads the parts of a logical cloud.
    ///
    /// # Errors
    /// A query failed.
    pub async fn cloud_view(&self, tx: &mut PgConnection, cloud: Uuid) -> Result<CloudView, Error> {
        let (copies, mut shown) = (cloud_copy::of_cloud(&mut *tx, cloud).await?, Vec::new());
        for copy in &copies {
            let status = self.environment.statuses.get(copy.id);
            let objects = match status.as_ref().map(|status| status.objects.clone()).filter(|objects| !objects.is_empty()) {
                Some(objects) => objects,
                None => {
                    let objects = bundle::objects(&mut *tx, self.store.key()?, &copy.digest).await?;
                    objects.iter().map(|object| unseen(object, &copy.namespace)).collect()
                }
            };
            let role = if copy.present { Role::Current } else { Role::Retiring };
            shown.push(AppCopy { binding: copy.id, app: APP.to_owned(), member: copy.member.0.clone(), role, status, objects });
        }
        Ok(CloudView { copies, shown })
    }

    /// The kubeconfig of the user of a logical cloud in one of its clusters. A certificate that ends soon is renewed first.
    ///
    /// # Errors
    /// The part is not there yet, it has no user, or cluster-manager is unavailable or the cluster refuses.
    pub async fn user_kubeconfig(&self, copy: &CloudCopy) -> Result<String, Error> {
        if copy.user_name.is_empty() {
            return Err(Error::NotNow("the logical cloud has no user: spec.user.userName is empty".to_owned()));
        }
        if !copy.settled {
            let why = copy.trouble.as_deref().map(|why| format!(": {why}")).unwrap_or_default();
            return Err(Error::NotNow(format!("The CSR hasn't been approved yet or the certificate hasn't been issued yet{why}")));
        }
        let order = UserOrder { user_name: copy.user_name.clone(), namespace: copy.namespace.clone() };
        let user = self.services.cluster_manager.issue_user(&copy.member.0, copy.id, &order).await?;
        if let Some(reason) = user.reason.filter(|_| user.expires.is_none()) {
            return Err(Error::NotNow(reason));
        }
        Ok(self.services.cluster_manager.user_kubeconfig(&copy.member.0, copy.id).await?.kubeconfig.expose().to_owned())
    }
}

impl CloudView {
    /// What a query shows.
    ///
    /// # Errors
    /// Something that a filter names does not exist.
    pub fn show(&self, wanted: &StatusQuery, deployed: &str) -> Result<CloudShown, Error> {
        if self.shown.is_empty() {
            return Ok(CloudShown::default());
        }
        wanted.check(&[APP.to_owned()], &self.shown)?;
        let status = DigStatus { deployed_status: Some(deployed.to_owned()), ..DigStatus::default() };
        let shown = wanted.show(status, &[APP.to_owned()], &self.shown);
        let clusters = shown.apps.into_iter().flatten().filter_map(|app| match app {
            AppEntry::Full(app) => Some(app.clusters),
            AppEntry::Name(_) => None,
        });
        Ok(CloudShown {
            deployed_counts: shown.deployed_counts.unwrap_or_default(),
            ready_counts: shown.ready_counts.unwrap_or_default(),
            clusters: clusters.flatten().collect(),
            clusters_by_app: shown.clusters_by_app,
            resources_by_app: shown.resources_by_app,
        })
    }

    /// Why it is not there yet, a sentence per cluster.
    pub fn reasons(&self) -> Vec<String> {
        self.copies.iter().filter_map(|copy| Some(format!("{}: {}", copy.member.0, copy.trouble.as_ref()?))).collect()
    }
}
