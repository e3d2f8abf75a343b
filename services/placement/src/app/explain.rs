//! Explains why an app is where it is, and where it would be placed now.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use drover_api::ledger::{ClaimReceipt, ExplainQuestion, ExplainedCalls, ExplainedDecision, Explanation};
use drover_scheduling::{AppRequest, Claim, Decision, DecisionRequest, DigRef, GroupPolicy, MemberKey, RefusedDestination};
use drover_store::{Timestamp, now};
use uuid::Uuid;

use super::{App, Book, LedgerError};
use crate::store;

/// Values of rho (the bound on the size of call groups) that an explanation compares with the one in use.
const RHO: std::ops::RangeInclusive<u32> = 1..=6;

impl App {
    /// Explains an app of a deployment intent group or composite app.
    ///
    /// # Errors
    /// `NotFound` if nothing was ever decided about the app; `Store` if the log cannot be read.
    pub async fn explain(&self, question: &ExplainQuestion) -> Result<Explanation, LedgerError> {
        let ExplainQuestion { project, group, app, refused } = question;
        let mut book = self.copy();
        let claims = book.claims_of_app(project, group, app);
        // What was decided after the claims were written last placed nothing: a later change was refused, and the app stayed where it is.
        let until = claims.iter().map(|claim| claim.fence).max().unwrap_or(i64::MAX);
        let stored = store::last_about(&self.store, project, group, app, until).await?;
        let dig = claims
            .first()
            .map(|claim| DigRef::clone(&claim.dig))
            .or_else(|| stored.as_ref().map(|stored| stored.answer.dig.clone()))
            .ok_or_else(|| LedgerError::NotFound(format!("There is no decision about {group}/{app} in project {project}")))?;
        let request = claims
            .first()
            .map(|claim| claim.request.as_ref().clone())
            .or_else(|| stored.as_ref().and_then(|stored| stored.request.apps.iter().find(|asked| asked.app == *app).cloned()));

        let asked = stored.as_ref().map_or_else(Vec::new, |stored| stored.request.apps.clone());
        let story = stored.as_ref().and_then(|stored| stored.answer.calls.clone());
        let calls = explain_calls(&book, &dig, asked, refused).map(|calls| ExplainedCalls { decided: story, ..calls });
        let now = request.filter(|_| book.knows_members()).and_then(|request| {
            take_away(&mut book, &claims);
            let request = anew(&dig, vec![request], refused);
            let decision = book.ledger.decide(Uuid::now_v7(), &request);
            explained(&decision, app, None, now())
        });
        let decided = stored.as_ref().and_then(|stored| explained(&stored.answer, app, Some(stored.answer.id), stored.created_at));
        Ok(Explanation {
            project: project.clone(),
            dig,
            app: app.clone(),
            moved: decided.as_ref().is_some_and(|decided| !claims.is_empty() && chosen_members(decided) != members_of(&claims)),
            room: claims.iter().map(|claim| receipt(claim)).collect(),
            decided,
            now,
            calls,
        })
    }
}

/// A request for what would be decided now.
fn anew(dig: &DigRef, apps: Vec<AppRequest>, refused: &[RefusedDestination]) -> DecisionRequest {
    let refused = refused.to_vec();
    DecisionRequest { dig: dig.clone(), apps, overflow: false, refused, operation: Uuid::nil(), fence: i64::MAX }
}

/// The call groups of the running apps, and those that every value of [`RHO`] and every policy would give. Where nothing runs, the requested apps
/// (`asked`) are used. `None` without call terms.
fn explain_calls(book: &Book, dig: &DigRef, asked: Vec<AppRequest>, refused: &[RefusedDestination]) -> Option<ExplainedCalls> {
    let running = book.ledger.call_story(dig);
    let claims: Vec<_> = book.ledger.claims().filter(|claim| claim.dig.id == dig.id).cloned().collect();
    let mut apps: BTreeMap<String, AppRequest> =
        claims.iter().map(|claim| (claim.request.app.clone(), AppRequest::clone(&claim.request))).collect();
    if apps.is_empty() {
        apps = asked.into_iter().map(|app| (app.app.clone(), app)).collect();
    }
    let own = apps.values().find_map(|app| app.terms.calls.as_ref())?.clone();
    let mut book = book.clone();
    take_away(&mut book, &claims);
    let mut bounds: BTreeSet<u32> = RHO.collect();
    bounds.insert(own.rho);
    let with = |rho: u32, policy: GroupPolicy| {
        let apps = apps.values().cloned().map(|mut app| {
            app.terms.calls.iter_mut().for_each(|calls| (calls.rho, calls.policy) = (rho, policy));
            app
        });
        book.ledger.decide(Uuid::nil(), &anew(dig, apps.collect(), refused)).calls
    };
    let by_rho = bounds.into_iter().filter_map(|rho| with(rho, own.policy)).collect();
    let by_policy = [GroupPolicy::CgsGreedy, GroupPolicy::Learned].into_iter().filter_map(|policy| with(own.rho, policy)).collect();
    Some(ExplainedCalls { running, decided: None, by_rho, by_policy })
}

/// Removes claims together with their observed pods, which would otherwise count as leftovers and take the app's own room.
fn take_away(book: &mut Book, claims: &[Arc<Claim>]) {
    for claim in claims {
        let capacity = book.ledger.room(&claim.member).and_then(|room| room.capacity.clone());
        if let Some(mut capacity) = capacity.filter(|capacity| capacity.observed.contains_key(&claim.id)) {
            Arc::make_mut(&mut capacity).observed.remove(&claim.id);
            book.ledger.set_capacity(&claim.member, Some(capacity));
        }
        book.ledger.put_claim(claim.id, None);
    }
    book.refresh_ages();
}

fn explained(decision: &Decision, app: &str, id: Option<Uuid>, at: Timestamp) -> Option<ExplainedDecision> {
    let part = decision.apps.iter().find(|part| part.app == app)?;
    Some(ExplainedDecision { id, at: at.to_string(), seq: decision.seq, outcome: decision.outcome, decision: part.clone() })
}

fn chosen_members(decided: &ExplainedDecision) -> BTreeSet<&MemberKey> {
    decided.decision.groups.iter().filter_map(|group| Some(&group.placement.as_ref()?.member)).collect()
}

fn members_of(claims: &[Arc<Claim>]) -> BTreeSet<&MemberKey> {
    claims.iter().map(|claim| &claim.member).collect()
}

fn receipt(claim: &Claim) -> ClaimReceipt {
    ClaimReceipt { claim: claim.id, state: claim.state, member: claim.member.clone(), pods: claim.pods.clone() }
}
