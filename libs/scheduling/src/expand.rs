//! From a placement intent to groups of alternatives: labels expanded, logical cloud applied, EMCO's group rules.

use std::collections::{BTreeMap, HashSet};

use crate::{Element, Ledger, MemberKey, MemberRoom, MemberState, PlacementTerms, WhenFull};

/// Alternatives of which exactly one is chosen.
pub(crate) struct Group<'a> {
    /// Registered members, by key.
    pub options: Vec<Choice<'a>>,
    /// Clusters that the intent names and nobody registered.
    pub missing: Vec<MemberKey>,
    /// The element, for people.
    pub label: String,
}

/// A member that an intent leads to.
#[derive(Clone, Copy)]
pub(crate) struct Choice<'a> {
    pub room: &'a MemberRoom,
    pub standing: Standing,
}

/// Whether a member may be used.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Standing {
    Allowed,
    OutsideLogicalCloud,
    Deregistering,
}

impl<'a> Group<'a> {
    /// Members that may be used, known or not.
    pub fn allowed(&self) -> impl Iterator<Item = &'a MemberRoom> + '_ {
        self.options.iter().filter(|c| c.standing == Standing::Allowed).map(|c| c.room)
    }

    /// The best provider priority among those that may be used, where the app insists on it.
    pub fn insists_on(&self, terms: &PlacementTerms, overflow: bool) -> Option<u8> {
        match terms.when_full {
            WhenFull::Preferred if !overflow => self.allowed().map(MemberRoom::priority).min(),
            _ => None,
        }
    }
}

/// The groups of an intent, mandatory clusters first.
pub(crate) fn groups<'a>(ledger: &'a Ledger, terms: &PlacementTerms) -> Vec<Group<'a>> {
    let cloud: HashSet<&MemberKey> = terms.logical_cloud.iter().collect();
    let mut mandatory: Vec<Group<'a>> = Vec::new();
    let mut alternatives: Vec<Group<'a>> = Vec::new();
    for element in &terms.intent.all_of {
        if element.any_of.is_empty() {
            let whole = group(ledger, &cloud, std::slice::from_ref(element));
            if whole.options.is_empty() && whole.missing.is_empty() {
                mandatory.push(whole);
                continue;
            }
            for choice in whole.options {
                mandatory.push(Group { label: choice.room.key.to_string(), options: vec![choice], missing: Vec::new() });
            }
            for key in whole.missing {
                mandatory.push(Group { label: key.to_string(), options: Vec::new(), missing: vec![key] });
            }
        } else {
            alternatives.push(group(ledger, &cloud, &element.any_of));
        }
    }
    if !terms.intent.any_of.is_empty() {
        alternatives.push(group(ledger, &cloud, &terms.intent.any_of));
    }
    // One cluster named twice is one placement.
    let mut seen = HashSet::new();
    mandatory.retain(|g| match g.options.as_slice() {
        [choice] => seen.insert(&choice.room.key),
        _ => true,
    });
    mandatory.extend(alternatives);
    mandatory
}

fn group<'a>(ledger: &'a Ledger, cloud: &HashSet<&MemberKey>, elements: &[Element]) -> Group<'a> {
    let mut found: BTreeMap<&'a MemberKey, &'a MemberRoom> = BTreeMap::new();
    let mut missing = Vec::new();
    let mut label = Vec::new();
    for element in elements {
        let provider = element.cluster_provider.as_deref().unwrap_or_default();
        if let Some(cluster) = &element.cluster {
            let key = MemberKey::new(provider, cluster);
            label.push(key.to_string());
            match ledger.room(&key).filter(|room| room.member.is_some()) {
                Some(room) => {
                    found.insert(&room.key, room);
                }
                None if !missing.contains(&key) => missing.push(key),
                None => {}
            }
        } else if let Some(wanted) = &element.cluster_label {
            label.push(format!("{provider} label {wanted}"));
            for room in ledger.rooms() {
                let carries = room.member.as_ref().is_some_and(|m| m.labels.contains(wanted));
                if carries && room.key.provider() == provider {
                    found.insert(&room.key, room);
                }
            }
        }
    }
    missing.sort();
    let standing = |room: &MemberRoom| {
        if !cloud.contains(&room.key) {
            Standing::OutsideLogicalCloud
        } else if room.member.as_ref().is_some_and(|m| m.state == MemberState::Deregistering) {
            Standing::Deregistering
        } else {
            Standing::Allowed
        }
    };
    let options = found.into_values().map(|room| Choice { room, standing: standing(room) }).collect();
    Group { options, missing, label: label.join(", ") }
}
