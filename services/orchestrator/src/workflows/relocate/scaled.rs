//! What the new copy of a moved app claims where somebody else has chosen the number of its pods.

use std::collections::BTreeMap;

use drover_api::bindings::{BindingStatus, Phase, ScaledWorkload};
use drover_api::scheduling::{AppRequest, MemberKey};

use crate::demand::following;
use crate::statuses::Statuses;
use crate::store::binding::{ApprovedDemand, Binding};

/// The request of the new copy of `old` at `to`, if it is not that of the old one. The synchronizer starts the copy with the largest number that
/// runs in other members. As long as nothing is known of the old copy, its claim counts.
pub(super) fn request(statuses: &Statuses, demands: &[ApprovedDemand], old: &Binding, to: &MemberKey) -> Option<AppRequest> {
    let approved = demands.iter().find(|approved| approved.binding == old.id)?;
    let known = |status: &BindingStatus| matches!(status.phase, Phase::Ready | Phase::Applied);
    statuses.get(old.id).filter(|status| known(status))?;
    let mut scaled: BTreeMap<String, ScaledWorkload> = BTreeMap::new();
    for status in approved.copies.iter().filter_map(|copy| statuses.get(*copy)).filter(|status| known(status) && status.member != *to) {
        for workload in &status.scaled {
            let most = scaled.entry(workload.workload()).or_insert_with(|| workload.clone());
            most.replicas = most.replicas.max(workload.replicas);
        }
    }
    let demand = following(&approved.demand, &scaled.into_values().collect::<Vec<_>>());
    (demand != old.request.demand).then(|| AppRequest { demand, ..old.request.clone() })
}
