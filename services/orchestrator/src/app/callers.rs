//! Apps of other groups that call the Services of a group by name: within a cluster a Service is found by its name, so they lose it when
//! the group moves and they do not.

use drover_manifest::callers::called;
use serde::Serialize;
use utoipa::ToSchema;

use super::{App, Error, GroupPath, group};
use crate::store::{bundle, deployment};

/// An app of another group that seems to call a Service by name.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, ToSchema)]
pub struct Caller {
    /// The app that calls, as `compositeApp/app`.
    pub caller: String,
    /// The Service, as `namespace/name`.
    pub service: String,
    /// The app of the group that has the Service.
    pub app: String,
}

/// Callers, in order.
#[derive(Debug, Serialize, ToSchema)]
pub struct CallerList {
    pub items: Vec<Caller>,
}

impl App {
    /// The running apps of other groups that seem to call Services of this group by name, as it was approved last, or would be if it
    /// never was.
    ///
    /// # Errors
    /// The group does not exist, cannot be approved, or a query failed.
    pub async fn callers(&self, path: &GroupPath) -> Result<CallerList, Error> {
        let mut db = self.store.acquire().await?;
        let group = group::at(&mut db, path).await?;
        let mut apps = deployment::approved_apps(&mut db, group.dig.id).await?;
        // Rendering takes connections of its own.
        drop(db);
        if apps.is_empty() {
            // A dry run of a new group approves nothing.
            apps = self.approve(path, true).await?.revision().into_iter().map(|revised| revised.app).collect();
        }
        let mut services = Vec::new();
        for app in &apps {
            services.extend(app.demand.services.iter().cloned());
        }
        let mut items = Vec::new();
        if !services.is_empty() {
            let mut db = self.store.acquire().await?;
            for other in bundle::running_elsewhere(&mut db, self.store.key()?, group.dig.id, &services).await? {
                for service in called(&other.objects, &other.namespace, &services) {
                    let of = apps.iter().find(|app| app.demand.services.iter().any(|own| own == service));
                    items.push(Caller {
                        caller: format!("{}/{}", other.composite_app, other.app),
                        service: service.to_owned(),
                        app: of.map(|app| app.app.clone()).unwrap_or_default(),
                    });
                }
            }
        }
        items.sort();
        items.dedup();
        Ok(CallerList { items })
    }
}
