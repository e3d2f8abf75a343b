//! Asks the clusters in a dry run whether they would accept the objects. Nothing is written anywhere.

use std::sync::Arc;

use drover_api::bindings::{DesiredBinding, DesiredState, Preflight, PreflightAnswer};
use drover_api::scheduling::{AppDecision, DigRef, MemberKey, RefusedDestination};
use futures::StreamExt;
use serde::Serialize;
use utoipa::ToSchema;
use uuid::Uuid;

use super::approve::Prepared;
use super::{App, Error};
use crate::render::Rendered;
use crate::store::bundle;
use crate::store::deployment::ApprovedApp;
use crate::store::grants::Rights;

/// How many clusters are asked at the same time.
const AT_ONCE: usize = 8;

/// What a cluster would refuse of an app.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
pub struct Refusal {
    pub app: String,
    pub member: MemberKey,
    /// A sentence per object, or that the cluster could not be asked.
    pub reasons: Vec<String>,
    /// Another cluster may accept the objects.
    #[serde(skip)]
    pub elsewhere: bool,
    /// It may end when the apps have left that would be moved; the operation goes on. Absent if false.
    #[serde(rename = "mayEnd", skip_serializing_if = "std::ops::Not::not")]
    pub may_end: bool,
}

impl Refusal {
    /// As a member where a decision does not place the app.
    pub(super) fn as_destination(&self, dig: Uuid) -> RefusedDestination {
        let reason = self.reasons.join("; ");
        RefusedDestination { dig, app: self.app.clone(), member: self.member.clone(), reason, refuses: true }
    }
}

/// An app with its objects.
pub(super) struct Candidate {
    pub app: ApprovedApp,
    pub rendered: Rendered,
}

/// Where a decision places its apps.
pub(super) fn places(apps: &[AppDecision]) -> Vec<(String, MemberKey)> {
    let of = |app: &AppDecision| {
        let places = app.groups.iter().filter_map(|group| Some((app.app.clone(), group.placement.as_ref()?.member.clone())));
        places.collect::<Vec<_>>()
    };
    apps.iter().flat_map(of).collect()
}

impl Prepared {
    /// Its apps with their objects.
    pub(super) fn candidates(&self) -> Vec<Candidate> {
        let rendered = self.apps.iter().zip(&self.bundles);
        rendered.map(|(app, rendered)| Candidate { app: app.clone(), rendered: rendered.clone() }).collect()
    }
}

impl App {
    /// The approved apps with the objects that are stored for them.
    pub(super) async fn stored(&self, apps: Vec<ApprovedApp>) -> Result<Vec<Candidate>, Error> {
        let mut db = self.store.acquire().await?;
        let mut candidates = Vec::with_capacity(apps.len());
        for app in apps {
            let objects = bundle::objects(&mut db, self.store.key()?, &app.digest).await?;
            let variants = bundle::variants(&mut db, self.store.key()?, &app.digest).await?;
            let rendered = Rendered { objects, digest: app.digest.clone(), variants };
            candidates.push(Candidate { app, rendered });
        }
        drop(db);
        Ok(candidates)
    }

    /// What the clusters would refuse, for each app in its place.
    pub(super) async fn refusals(
        &self,
        dig: &DigRef,
        rights: Rights,
        candidates: &[Candidate],
        places: Vec<(String, MemberKey)>,
    ) -> Vec<Refusal> {
        let (grants, act_as) = (rights.grants.map(Arc::new), rights.act_as.map(Arc::from));
        let asked = places.into_iter().filter_map(|(app, member)| {
            let candidate = candidates.iter().find(|candidate| candidate.app.app == app)?;
            let objects = candidate.rendered.in_member(&member).to_vec();
            let binding = DesiredBinding {
                id: Uuid::nil(),
                dig: Arc::new(dig.clone()),
                app,
                member,
                namespace: candidate.app.namespace.clone(),
                digest: candidate.app.digest.as_str().into(),
                state: DesiredState::Present,
                fence: 0,
                grants: grants.clone(),
                act_as: act_as.clone(),
                share: None,
                rollback: false,
                delete_volumes: false,
                names: false,
            };
            Some(Preflight { binding, objects })
        });
        let answers = futures::stream::iter(asked.collect::<Vec<_>>()).map(async |asked| {
            let answer = self.services.synchronizer.preflight(&asked).await;
            let PreflightAnswer { reasons, elsewhere, may_end, .. } = answer.unwrap_or_else(|error| PreflightAnswer {
                reasons: vec![format!("it could not be asked: {error}")],
                ..PreflightAnswer::default()
            });
            Refusal { app: asked.binding.app, member: asked.binding.member, reasons, elsewhere, may_end }
        });
        answers.buffered(AT_ONCE).filter(|refusal| std::future::ready(!refusal.reasons.is_empty())).collect().await
    }
}
