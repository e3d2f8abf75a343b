//! Dry runs of new apps: where they would be placed, what would have to be moved for them, and which clusters would refuse them. No service
//! writes anything.

use std::collections::BTreeMap;

use drover_api::scheduling::{AppRequest, DecisionRequest, DigRef, MemberKey, Outcome, PlanKind, RefusedDestination, WhenFull};
use uuid::Uuid;

use super::basis::Basis;
use super::preflight::{self, Candidate, Refusal};
use super::preview::{Preview, dry_plan};
use super::{App, Error};
use crate::store::grants::Rights;
use crate::store::revision::Requester;
use crate::workflows::room;

/// Apps of a group that have no place yet.
pub(super) struct NewApps<'a> {
    pub dig: DigRef,
    pub apps: Vec<AppRequest>,
    /// By app: those that run and with which the call graph keeps it together.
    pub together: BTreeMap<String, Vec<String>>,
    pub rights: Rights,
    /// These apps with their objects; there may be others among them.
    pub candidates: &'a [Candidate],
    /// Groups that no plan moves now, and why.
    pub excluded: BTreeMap<Uuid, String>,
    /// Clusters where apps recently did not become ready.
    pub refused: Vec<RefusedDestination>,
    pub by: &'a Requester,
}

impl Preview {
    /// Where it places the apps, as it is or after moves.
    fn places(&self) -> Vec<(String, MemberKey)> {
        let planned = self.plan.as_ref().and_then(|document| document.plan.as_ref()).map(|plan| plan.newcomer.as_slice());
        let decided = [Some(&self.decision), self.overflow.as_ref()].into_iter().flatten();
        let decided = decided.filter(|decision| decision.outcome == Outcome::Placed).map(|decision| decision.apps.as_slice());
        decided.chain(planned).flat_map(preflight::places).collect()
    }

    /// Whether it places the apps after moves.
    fn moves(&self) -> bool {
        let planned = self.plan.as_ref().and_then(|document| document.plan.as_ref());
        planned.is_some_and(|plan| plan.waves.iter().any(|wave| !wave.is_empty()))
    }
}

impl App {
    /// Where new apps would be placed, and what would have to be moved for them. Where a cluster refuses the objects because of what it has,
    /// the next one is asked, as the operation does. If all refuse, moves are shown with which a refusal may end; if there are none, the last
    /// one that was asked, and the reasons of each.
    pub(super) async fn newcomer(&self, new: NewApps<'_>) -> Result<Preview, Error> {
        let mut turned_down: Vec<Refusal> = Vec::new();
        let mut last: Option<Preview> = None;
        loop {
            let attempt = self.attempt(&new, &turned_down).await?;
            let places = attempt.places();
            if places.is_empty() {
                // Nothing is left but the clusters that refuse.
                let (hopes, lasting): (Vec<_>, Vec<_>) = turned_down.into_iter().partition(|refusal| refusal.may_end);
                if !hopes.is_empty() {
                    let attempt = self.attempt(&new, &lasting).await?;
                    let places = attempt.places();
                    if !places.is_empty() {
                        let used = |hope: &Refusal| places.iter().any(|(app, member)| (app, member) == (&hope.app, &hope.member));
                        return Ok(Preview { refusals: hopes.into_iter().filter(used).collect(), ..attempt });
                    }
                    let hopes = hopes.into_iter().map(|hope| Refusal { may_end: false, ..hope });
                    return Ok(Preview { refusals: hopes.chain(lasting).collect(), ..last.unwrap_or(attempt) });
                }
                return Ok(Preview { refusals: lasting, ..last.unwrap_or(attempt) });
            }
            let mut found = self.refusals(&new.dig, new.rights.clone(), new.candidates, places).await;
            if found.is_empty() {
                return Ok(attempt);
            }
            let (mut lasting, moves) = (false, attempt.moves());
            for refusal in &mut found {
                let stays = new.together.get(&refusal.app).and_then(|others| room::stays_with(&refusal.app, others));
                refusal.may_end &= moves && stays.is_none();
                lasting |= !(refusal.elsewhere || refusal.may_end) || stays.is_some();
                refusal.reasons.extend(stays);
            }
            turned_down.extend(found);
            if lasting {
                return Ok(Preview { refusals: turned_down, ..attempt });
            }
            last = Some(attempt);
        }
    }

    /// A decision that leaves out the clusters that refuse, and a plan if there is no room.
    async fn attempt(&self, new: &NewApps<'_>, turned_down: &[Refusal]) -> Result<Preview, Error> {
        let refused: Vec<RefusedDestination> = turned_down.iter().map(|refusal| refusal.as_destination(new.dig.id)).collect();
        let (dig, apps) = (new.dig.clone(), new.apps.clone());
        let mut request = DecisionRequest { dig, apps, overflow: false, refused, operation: Uuid::nil(), fence: 0 };
        let decision = self.services.placement.decide_dry(&request).await?;
        let basis = Basis::of(&new.apps, &decision, None);
        let mut preview = Preview { plan: None, overflow: None, refusals: Vec::new(), basis, decision };
        let insists = new.apps.iter().any(|app| app.terms.when_full == WhenFull::Preferred);
        // An app with `whenFull: preferred` gets a plan also while the capacity of its preferred clusters is unknown.
        if preview.decision.outcome == Outcome::NoRoom || (preview.decision.outcome == Outcome::Unknown && insists) {
            let kind = PlanKind::Newcomer { dig: new.dig.clone(), apps: new.apps.clone() };
            let refused = new.refused.iter().chain(&request.refused).cloned().collect();
            let order = dry_plan(kind, (new.excluded.clone(), refused), Vec::new(), new.by);
            let plan = self.services.migration.plan(Uuid::now_v7(), &order).await?;
            if plan.plan.is_none() && insists {
                request.overflow = true;
                preview.overflow = Some(self.services.placement.decide_dry(&request).await?);
            }
            preview.basis = Basis::of(&new.apps, &preview.decision, plan.plan.as_ref());
            preview.plan = Some(plan);
        }
        Ok(preview)
    }
}
