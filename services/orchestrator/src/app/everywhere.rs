//! Apps that run on every cluster of a selection, also on those that are added later: `allOf` with a label or `*` as the cluster.
//!
//! Which clusters that are, only placement knows: a dry decision says. [`App::extend`] starts an update of what runs for each cluster that
//! has no copy yet; it changes nothing else, so documents that were edited and not deployed have no effect.

use std::collections::BTreeSet;
use std::time::Instant;

use drover_api::scheduling::{AppRequest, DecisionRequest, DigRef, Element, Intent, MemberKey, PlacementTerms, Verdict};
use drover_workflow::Workflow;
use uuid::Uuid;

use super::extension::Extension;
use super::lifecycle::RevisionChange;
use super::{App, Error, group};
use crate::peers::{PeerError, Placement};
use crate::store::binding::{self, Binding, Role};
use crate::store::deployment::{self, DeploymentState};
use crate::store::revision::{self, Requester, RevisionApp};
use crate::store::{hold, overview};
use crate::workflows::{Update, only};

/// Groups whose apps are read with one query.
const TOGETHER: usize = 100;

/// Whether which clusters an element means depends on what is registered.
pub(super) fn is_open(element: &Element) -> bool {
    element.any_of.is_empty() && (element.cluster_label.is_some() || element.cluster.as_deref() == Some(MemberKey::EVERY))
}

/// Whether an app with this intent runs on every cluster of a selection.
pub fn spreads(intent: &Intent) -> bool {
    intent.all_of.iter().any(is_open)
}

/// Whether any part of the intent means clusters that it does not name.
pub fn has_open_parts(intent: &Intent) -> bool {
    spreads(intent) || intent.any_of.iter().chain(intent.all_of.iter().flat_map(|element| &element.any_of)).any(is_open)
}

/// A member that an element means.
struct Meant {
    member: MemberKey,
    /// Whether a copy could start there now.
    fits: bool,
    /// Whether copies may be there at all.
    allowed: bool,
}

/// The members that these elements mean, in order.
async fn meant(placement: &dyn Placement, dig: &DigRef, app: &AppRequest, elements: &[Element]) -> Result<Vec<Meant>, PeerError> {
    let intent = Intent { all_of: elements.to_vec(), any_of: Vec::new() };
    let terms = PlacementTerms { intent, ..app.terms.clone() };
    let request = DecisionRequest {
        dig: dig.clone(),
        apps: vec![AppRequest { terms, ..app.clone() }],
        overflow: false,
        refused: Vec::new(),
        operation: Uuid::nil(),
        fence: 0,
    };
    let decision = placement.decide_dry(&request).await?;
    let groups = decision.apps.into_iter().flat_map(|app| app.groups);
    let found = groups.flat_map(|group| group.considered).filter(|considered| !considered.member.0.is_empty());
    Ok(found
        .map(|considered| Meant {
            fits: matches!(considered.verdict, Verdict::Chosen | Verdict::Fits),
            allowed: considered.verdict != Verdict::NotAllowed,
            member: considered.member,
        })
        .collect())
}

/// The intent with the names of the clusters that it means, for an app that has these copies. A closed cluster counts only if a copy runs
/// there. `None`: a part of it means no cluster at all.
pub(super) async fn resolved(
    placement: &dyn Placement,
    dig: &DigRef,
    app: &AppRequest,
    copies: &[&Binding],
) -> Result<Option<Intent>, PeerError> {
    let mut named = Intent::default();
    for element in &app.terms.intent.all_of {
        match element.any_of.is_empty() {
            true => named.all_of.extend(names(placement, dig, app, std::slice::from_ref(element), copies).await?),
            false => {
                let any_of = names(placement, dig, app, &element.any_of, copies).await?;
                named.all_of.push(Element { any_of, ..Element::default() });
            }
        }
    }
    named.any_of = names(placement, dig, app, &app.terms.intent.any_of, copies).await?;
    Ok(Some(named).filter(|named| is_complete(&app.terms.intent, named)))
}

/// Whether every part of the intent means a cluster: a copy must not be removed because a label is on none.
fn is_complete(intent: &Intent, named: &Intent) -> bool {
    let means = |part: &[Element], named: &[Element]| part.is_empty() || !named.is_empty();
    means(&intent.any_of, &named.any_of)
        && means(&intent.all_of, &named.all_of)
        && named.all_of.iter().all(|element| element.cluster.is_some() || !element.any_of.is_empty())
}

async fn names(
    placement: &dyn Placement,
    dig: &DigRef,
    app: &AppRequest,
    elements: &[Element],
    copies: &[&Binding],
) -> Result<Vec<Element>, PeerError> {
    if !elements.iter().any(is_open) {
        return Ok(elements.to_vec());
    }
    let runs_on = |member: &MemberKey| copies.iter().any(|copy| copy.member == *member);
    let meant = meant(placement, dig, app, elements).await?.into_iter().filter(|meant| meant.allowed || runs_on(&meant.member));
    let mut members: BTreeSet<MemberKey> = meant.map(|meant| meant.member).collect();
    // A cluster that placement does not know at this moment keeps its copy.
    members.extend(copies.iter().filter(|copy| elements.iter().any(|element| keeps(element, copy))).map(|copy| copy.member.clone()));
    Ok(members.iter().map(only).collect())
}

/// Whether a copy may stay because of an element, whatever is known of its cluster: an element with a label keeps it only if the copy was
/// made for the same element.
fn keeps(element: &Element, copy: &Binding) -> bool {
    let whole = MemberKey::new(element.cluster_provider.as_deref().unwrap_or_default(), MemberKey::EVERY);
    let known = &copy.request.terms.intent;
    is_open(element)
        && whole.includes(&copy.member)
        && (element.cluster_label.is_none() || known.all_of.contains(element) || known.any_of.contains(element))
}

impl App {
    /// Starts copies of apps that run on every cluster of a selection on clusters that have none yet. Returns the operations.
    ///
    /// # Errors
    /// A query failed, or placement is unavailable: the first error, after all groups have been looked at.
    pub async fn extend(&self, extension: &mut Extension) -> Result<Vec<Uuid>, Error> {
        let mut db = self.store.acquire().await?;
        let due = extension.due(overview::spreading(&mut db).await?);
        let (mut lacking, mut started, mut failed) = (Vec::new(), Vec::new(), None);
        for some in due.chunks(TOGETHER) {
            let ids: Vec<Uuid> = some.iter().map(|(id, _)| *id).collect();
            match overview::spreading_apps(&mut db, &ids).await {
                Ok(apps) => lacking.extend(extension.lacking(some, &apps)),
                // One of them cannot be read.
                Err(error) => {
                    lacking.extend(some);
                    failed = failed.or(Some(error.into()));
                }
            }
        }
        drop(db);
        for (dig, revision) in lacking {
            match self.extend_group(dig, revision, extension).await {
                Ok(operation) => started.extend(operation),
                // The others do not wait for it.
                Err(error) => failed = failed.or(Some(error)),
            }
        }
        failed.map_or(Ok(started), Err)
    }

    async fn extend_group(&self, id: Uuid, revision: i64, extension: &mut Extension) -> Result<Option<Uuid>, Error> {
        let mut db = self.store.acquire().await?;
        let group = group::by_id(&mut db, id).await?;
        let runs = deployment::load(&mut db, id, false).await?.state == DeploymentState::Instantiated;
        let current = revision::reached(&mut db, id).await?.into_iter().map(|revision| revision.revision).max();
        let Some(current) = current.filter(|_| runs) else { return Ok(None) };
        if hold::holder(&mut db, id).await?.is_some() {
            return Ok(None);
        }
        let apps = revision::apps(&mut db, id, current).await?;
        let copies = binding::of_dig(&mut db, id).await?;
        drop(db);

        let (mut missing, mut complete) = (BTreeSet::new(), true);
        for app in apps.iter().filter(|app| spreads(&app.terms.intent)) {
            let open: Vec<Element> = app.terms.intent.all_of.iter().filter(|element| is_open(element)).cloned().collect();
            let meant = meant(self.services.placement.as_ref(), &group.dig, &app.request(), &open).await?;
            let roles = |member: &MemberKey| {
                let there = copies.iter().filter(|copy| copy.app == app.app.app && copy.member == *member);
                there.map(|copy| copy.role).filter(|role| *role != Role::Gone).collect::<Vec<_>>()
            };
            // A copy that is going is waited for, and then missed.
            complete &= meant.iter().all(|meant| !meant.allowed || roles(&meant.member).contains(&Role::Current));
            let lacking = meant.into_iter().filter(|meant| meant.allowed && roles(&meant.member).is_empty());
            missing.extend(lacking.filter(|meant| meant.fits).map(|meant| (id, app.app.app.clone(), meant.member)));
        }
        if missing.iter().all(|one| extension.tried.contains_key(one)) {
            match complete {
                true => extension.is_complete(id, revision),
                false => extension.waits(id, revision),
            }
            return Ok(None);
        }
        let places: BTreeSet<String> = missing.iter().map(|(_, _, member)| member.to_string()).collect();
        let description = format!("copies on {}", places.into_iter().collect::<Vec<_>>().join(", "));
        let started = self.start_extension(id, &apps, &description).await?;
        if started.is_some() {
            extension.tried.extend(missing.into_iter().map(|one| (one, Instant::now())));
        }
        Ok(started)
    }

    async fn start_extension(&self, id: Uuid, apps: &[RevisionApp], description: &str) -> Result<Option<Uuid>, Error> {
        // Labels are another service's, which is asked without a connection.
        let labelled = self.labelled_for(apps).await?;
        let mut tx = self.store.begin().await?;
        let group = group::by_id(&mut tx, id).await?;
        // Nobody asked for it at this moment, so nobody's right to move apps of other projects counts.
        let by = Requester { name: "drover".to_owned(), movable_projects: Some(vec![group.dig.project.clone()]) };
        let change =
            RevisionChange { verb: Update::KIND, from_revision: None, by: &by, description, answers: &[], labelled, changed: Vec::new() };
        let operation = match self.change_in(&mut tx, &group, apps, &change).await {
            Ok((operation, _)) => operation,
            // Somebody else changes it at this moment.
            Err(Error::Busy { .. } | Error::WrongState { .. }) => return Ok(None),
            Err(error) => return Err(error),
        };
        tx.commit().await?;
        self.engine.nudge();
        tracing::info!(dig.id = %id, operation.id = %operation, description, "an application is brought to clusters that have none of it yet");
        Ok(Some(operation))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn intent_of_which_a_part_means_no_cluster_is_not_complete() {
        let one = || vec![only(&MemberKey::new("p", "a"))];
        let of = |all_of: Vec<Element>, any_of: Vec<Element>| Intent { all_of, any_of };
        let empty_group = || vec![Element::default()];
        assert!(is_complete(&of(vec![], one()), &of(vec![], one())));
        assert!(!is_complete(&of(vec![], one()), &Intent::default()));
        assert!(!is_complete(&of(one(), vec![]), &Intent::default()));
        assert!(!is_complete(&of(one(), vec![]), &of(empty_group(), vec![])));
    }

    #[test]
    fn intent_spreads_if_it_demands_clusters_that_it_does_not_name() {
        let of = |cluster: Option<&str>, label: Option<&str>| Element {
            cluster_provider: Some("p".into()),
            cluster: cluster.map(str::to_owned),
            cluster_label: label.map(str::to_owned),
            any_of: Vec::new(),
        };
        let group = Element { any_of: vec![of(Some("*"), None)], ..Element::default() };
        let all = |element: Element| Intent { all_of: vec![element], any_of: Vec::new() };
        assert!(spreads(&all(of(Some("*"), None))) && spreads(&all(of(None, Some("edge")))));
        assert!(!spreads(&all(of(Some("a"), None))) && !spreads(&all(group.clone())));
        assert!(has_open_parts(&all(group)) && has_open_parts(&Intent { all_of: vec![], any_of: vec![of(Some("*"), None)] }));
        assert!(!has_open_parts(&Intent { all_of: vec![of(Some("a"), None)], any_of: vec![of(Some("b"), None)] }));
    }
}
