//! From a placement intent to groups of alternatives: labels expanded, logical cloud applied, EMCO's group rules.

use std::collections::HashSet;

use crate::{Element, Ledger, MemberKey, MemberRoom, MemberState, PlacementTerms, WhenFull};

/// Alternatives of which exactly one is chosen.
pub(crate) struct Group<'a> {
    /// Registered members, by provider priority, then key.
    pub options: Vec<Choice<'a>>,
    /// Clusters that the intent names and nobody registered.
    pub missing: Vec<MemberKey>,
    /// What it was made from.
    elements: Vec<Element>,
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
    /// What the intent says, for people.
    pub fn label(&self) -> String {
        let name = |e: &Element| {
            let provider = e.cluster_provider.as_deref().unwrap_or_default();
            match (&e.cluster, &e.cluster_label) {
                (Some(cluster), _) => format!("{provider}+{cluster}"),
                (None, Some(label)) => format!("{provider} label {label}"),
                (None, None) => provider.to_owned(),
            }
        };
        self.elements.iter().map(name).collect::<Vec<_>>().join(", ")
    }

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
                mandatory.push(Group { options: vec![choice], missing: Vec::new(), elements: Vec::new() });
            }
            for key in whole.missing {
                mandatory.push(Group { options: Vec::new(), missing: vec![key], elements: Vec::new() });
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
    let mut found: Vec<&'a MemberRoom> = Vec::with_capacity(elements.len());
    let mut missing = Vec::new();
    let mut key = String::new();
    // All labels are looked for in one walk over the members.
    let mut labels: Vec<(&str, &String)> = Vec::new();
    for element in elements {
        let provider = element.cluster_provider.as_deref().unwrap_or_default();
        if let Some(cluster) = &element.cluster {
            key.clear();
            key.push_str(provider);
            key.push('+');
            key.push_str(cluster);
            match ledger.registered(&key) {
                Some(room) => found.push(room),
                None => missing.push(MemberKey(key.clone())),
            }
        } else if let Some(wanted) = &element.cluster_label {
            labels.push((provider, wanted));
        }
    }
    if !labels.is_empty() {
        let carries = |room: &&MemberRoom| {
            let provider = room.key.provider();
            let member = room.member.as_ref();
            member.is_some_and(|member| labels.iter().any(|(of, label)| *of == provider && member.labels.contains(label)))
        };
        found.extend(ledger.rooms().filter(carries));
    }
    missing.sort();
    missing.dedup();
    found.sort_by(|a, b| a.priority().cmp(&b.priority()).then_with(|| a.key.cmp(&b.key)));
    found.dedup_by(|a, b| a.key == b.key);
    let standing = |room: &MemberRoom| {
        if !cloud.contains(&room.key) {
            Standing::OutsideLogicalCloud
        } else if room.member.as_ref().is_some_and(|m| m.state == MemberState::Deregistering) {
            Standing::Deregistering
        } else {
            Standing::Allowed
        }
    };
    let options: Vec<Choice<'_>> = found.into_iter().map(|room| Choice { room, standing: standing(room) }).collect();
    // Only a group that leads nowhere is ever described by what it was made from.
    let elements = if options.is_empty() && missing.is_empty() { elements.to_vec() } else { Vec::new() };
    Group { options, missing, elements }
}
