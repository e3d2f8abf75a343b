//! Whether the terms of an app still allow a member that was chosen earlier: intents, labels, logical clouds and registrations may have
//! changed since a plan was made.

use std::collections::BTreeSet;

use crate::expand::groups;
use crate::{AppRequest, Ledger, MemberKey};

/// Why the terms of the app do not allow `member`; `None` if they allow it.
pub(crate) fn member_refusal(ledger: &Ledger, request: &AppRequest, member: &MemberKey) -> Option<String> {
    let groups = groups(ledger, &request.terms);
    let allowed: BTreeSet<&MemberKey> = groups.iter().flat_map(|group| group.allowed()).map(|room| &room.key).collect();
    if allowed.contains(member) {
        return None;
    }
    let names: Vec<String> = allowed.iter().take(5).map(ToString::to_string).collect();
    let more = allowed.len().saturating_sub(names.len());
    let which = match names.len() {
        0 => "no cluster at all".to_owned(),
        _ if more == 0 => names.join(", "),
        _ => format!("{} and {more} more", names.join(", ")),
    };
    Some(format!("{} may not run on {member}: its placement intent and logical cloud now allow {which}", request.app))
}

/// The group of the newcomer's intent for which `places` has no member, as text; `None` if each group has one.
pub(crate) fn missing_place(ledger: &Ledger, request: &AppRequest, places: &BTreeSet<&MemberKey>) -> Option<String> {
    let open = groups(ledger, &request.terms).into_iter().find(|group| !group.allowed().any(|room| places.contains(&room.key)))?;
    let mut names: Vec<String> = open.allowed().take(5).map(|room| room.key.to_string()).collect();
    if names.is_empty() {
        names.push(open.label());
    }
    Some(format!("{} must also run on one of {}, but the transaction gives it no place there", request.app, names.join(", ")))
}
