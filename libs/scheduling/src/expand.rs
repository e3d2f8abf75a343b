//! Expands a placement intent into groups of alternatives by EMCO's rules: resolves labels and applies the logical cloud.

use std::cell::OnceCell;
use std::collections::{HashMap, HashSet};

use crate::reachability::out_of_reach;
use crate::{Element, Ledger, MemberKey, MemberRoom, MemberState, PlacementTerms, RefusedDestination, WhenFull};

/// Alternatives, of which exactly one is chosen.
pub(crate) struct Group<'a> {
    /// Registered members, sorted by provider priority, then by key.
    pub options: Vec<MemberOption<'a>>,
    /// Clusters that the intent names but that are not registered.
    pub missing: Vec<MemberKey>,
    /// The elements of the intent; kept only if they lead to no member.
    elements: Vec<Element>,
}

/// A member that an intent names.
#[derive(Clone, Copy)]
pub(crate) struct MemberOption<'a> {
    pub room: &'a MemberRoom,
    pub standing: Standing<'a>,
}

/// Whether a member may be used.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Standing<'a> {
    Allowed,
    OutsideLogicalCloud,
    Deregistering,
    /// The app was refused or did not become ready there, and why.
    Refused(&'a RefusedDestination),
    Cordoned,
    /// A controller excludes it.
    Excluded,
    /// The data path does not reach the Services of the app's routes there.
    OutOfReach,
}

impl<'a> Group<'a> {
    /// The elements of the intent as text for users.
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

    /// Members that may be used, whether their capacity is known or not.
    pub fn allowed(&self) -> impl Iterator<Item = &'a MemberRoom> + '_ {
        self.options.iter().filter(|c| c.standing == Standing::Allowed).map(|c| c.room)
    }

    /// Leaves out the members for which there is a reason why the app cannot run there.
    pub fn refuse(&mut self, why: impl Fn(&MemberKey) -> Option<&'a RefusedDestination>) {
        for option in self.options.iter_mut().filter(|option| option.standing == Standing::Allowed) {
            if let Some(refused) = why(&option.room.key) {
                option.standing = Standing::Refused(refused);
            }
        }
    }

    /// Whether there is a member that would be allowed if the app had become Ready there.
    pub fn has_refused(&self) -> bool {
        self.options.iter().any(|option| matches!(option.standing, Standing::Refused(_)))
    }

    /// The only provider priority that may be used: the best one of the group, if the app insists on it (`whenFull: preferred`).
    pub fn insists_on(&self, terms: &PlacementTerms, overflow: bool) -> Option<u8> {
        match terms.when_full {
            WhenFull::Preferred if !overflow => {
                let counts = |option: &&MemberOption<'_>| matches!(option.standing, Standing::Allowed | Standing::Refused(_));
                self.options.iter().filter(counts).map(|option| option.room.priority()).min()
            }
            _ => None,
        }
    }
}

/// Expands an intent into its groups, mandatory clusters first.
pub(crate) fn groups<'a>(ledger: &'a Ledger, terms: &PlacementTerms) -> Vec<Group<'a>> {
    groups_in(ledger, None, terms, &Cloud::of(terms))
}

/// As [`groups`], where `cloud` is that of the terms. Whoever expands many intents of the same ledger keeps the index for them.
pub(crate) fn groups_in<'a>(
    ledger: &'a Ledger,
    index: Option<&OnceCell<ByLabel<'a>>>,
    terms: &PlacementTerms,
    cloud: &Cloud<'_>,
) -> Vec<Group<'a>> {
    let group = |elements: &[Element]| group(ledger, index, terms, cloud, elements);
    let mut mandatory: Vec<Group<'a>> = Vec::new();
    let mut alternatives: Vec<Group<'a>> = Vec::new();
    for element in &terms.intent.all_of {
        if element.any_of.is_empty() {
            let whole = group(std::slice::from_ref(element));
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
            alternatives.push(group(&element.any_of));
        }
    }
    if !terms.intent.any_of.is_empty() {
        alternatives.push(group(&terms.intent.any_of));
    }
    // A cluster that is named twice gets one placement.
    let mut seen = HashSet::new();
    mandatory.retain(|g| match g.options.as_slice() {
        [choice] => seen.insert(&choice.room.key),
        _ => true,
    });
    mandatory.extend(alternatives);
    mandatory
}

/// Whether an element of `all_of` stands for every cluster of a selection in which this one is.
pub(crate) fn means_every_cluster(element: &Element, room: &MemberRoom) -> bool {
    let labelled = |label: &String| room.member.as_ref().is_some_and(|member| member.labels.contains(label));
    element.cluster.as_deref().is_none_or(|cluster| cluster == MemberKey::EVERY) && element.means(&room.key, labelled)
}

/// The members that a logical cloud allows.
pub(crate) struct Cloud<'t> {
    named: HashSet<&'t MemberKey>,
    /// Providers of which every cluster is allowed; `*`: those of all.
    providers: Vec<&'t str>,
}

impl<'t> Cloud<'t> {
    pub fn of(terms: &'t PlacementTerms) -> Self {
        let (open, named): (Vec<_>, Vec<_>) = terms.logical_cloud.iter().partition(|key| key.cluster() == MemberKey::EVERY);
        Self { named: named.into_iter().collect(), providers: open.into_iter().map(MemberKey::provider).collect() }
    }

    fn has(&self, member: &MemberKey) -> bool {
        let every = |provider: &&str| *provider == MemberKey::EVERY || *provider == member.provider();
        self.providers.iter().any(every) || self.named.contains(member)
    }
}

/// The members of a ledger by label, with their positions in the ledger.
pub(crate) struct ByLabel<'a>(HashMap<&'a str, Vec<(usize, &'a MemberRoom)>>);

impl<'a> ByLabel<'a> {
    pub fn of(ledger: &'a Ledger) -> Self {
        let mut index: HashMap<&str, Vec<(usize, &MemberRoom)>> = HashMap::new();
        for (at, room) in ledger.rooms().enumerate() {
            let labels = room.member.iter().flat_map(|member| &member.labels);
            labels.for_each(|label| index.entry(label).or_default().push((at, room)));
        }
        Self(index)
    }

    /// The members with one of these labels, given as (provider, label), in the order of the ledger.
    fn with_any(&self, labels: &[(&str, &String)]) -> impl Iterator<Item = &'a MemberRoom> + use<'a> {
        let mut found: Vec<(usize, &MemberRoom)> = Vec::new();
        for (provider, label) in labels {
            let all = self.0.get(label.as_str()).into_iter().flatten();
            found.extend(all.filter(|(_, room)| is_of(provider, room)));
        }
        found.sort_by_key(|(at, _)| *at);
        found.dedup_by_key(|(at, _)| *at);
        found.into_iter().map(|(_, room)| room)
    }
}

/// Whether a member is of a provider; `*` is every provider.
fn is_of(provider: &str, room: &MemberRoom) -> bool {
    provider == MemberKey::EVERY || provider == room.key.provider()
}

fn group<'a>(
    ledger: &'a Ledger,
    index: Option<&OnceCell<ByLabel<'a>>>,
    terms: &PlacementTerms,
    cloud: &Cloud<'_>,
    elements: &[Element],
) -> Group<'a> {
    let mut found: Vec<&'a MemberRoom> = Vec::with_capacity(elements.len());
    let mut missing = Vec::new();
    let mut key = String::new();
    // All labels, and all elements that stand for every cluster, are resolved together.
    let mut labels: Vec<(&str, &String)> = Vec::new();
    let mut providers: Vec<&str> = Vec::new();
    for element in elements {
        let provider = element.cluster_provider.as_deref().unwrap_or_default();
        if element.cluster.as_deref() == Some(MemberKey::EVERY) {
            providers.push(provider);
        } else if let Some(cluster) = &element.cluster {
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
    let named = !found.is_empty();
    labels.sort_unstable();
    labels.dedup();
    match (index, labels.as_slice(), providers.as_slice()) {
        (_, [], []) => {}
        (Some(index), labels, []) => found.extend(index.get_or_init(|| ByLabel::of(ledger)).with_any(labels)),
        (_, labels, providers) => {
            let meant = |room: &&MemberRoom| {
                let Some(member) = &room.member else { return false };
                let labelled = |(of, label): &(&str, &String)| member.labels.contains(*label) && is_of(of, room);
                providers.iter().any(|of| is_of(of, room)) || labels.iter().any(labelled)
            };
            found.extend(ledger.rooms().filter(meant));
        }
    }
    missing.sort();
    missing.dedup();
    // Members that were found by label or provider come from the ledger, sorted by key and each once.
    if named {
        found.sort_by(|a, b| a.key.cmp(&b.key));
        found.dedup_by(|a, b| std::ptr::eq(*a, *b));
    }
    found.sort_by_key(|room| room.priority());
    let standing = |room: &MemberRoom| {
        if !cloud.has(&room.key) {
            Standing::OutsideLogicalCloud
        } else if room.member.as_ref().is_some_and(|m| m.state == MemberState::Deregistering) {
            Standing::Deregistering
        } else if room.member.as_ref().is_some_and(|m| m.cordoned.is_some()) {
            Standing::Cordoned
        } else if terms.excluded(&room.key).is_some() {
            Standing::Excluded
        } else if out_of_reach(terms, room).is_some() {
            Standing::OutOfReach
        } else {
            Standing::Allowed
        }
    };
    let options: Vec<MemberOption<'_>> = found.into_iter().map(|room| MemberOption { room, standing: standing(room) }).collect();
    // The elements are only needed to describe a group that leads to no member.
    let elements = if options.is_empty() && missing.is_empty() { elements.to_vec() } else { Vec::new() };
    Group { options, missing, elements }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::FleetMember;

    fn ledger() -> Ledger {
        let mut ledger = Ledger::default();
        for (key, priority, labels) in
            [("b+1", 2, "new,east"), ("a+2", 1, "new"), ("a+1", 1, "east,new"), ("c+1", 1, ""), ("b+2", 2, "east"), ("c+2", 3, "east")]
        {
            let labels = labels.split(',').filter(|label| !label.is_empty()).map(str::to_owned).collect();
            ledger.set_member(FleetMember { key: MemberKey(key.into()), priority, labels, ..FleetMember::default() });
        }
        ledger
    }

    /// Labels are given as provider:label, clusters as provider+cluster.
    fn terms(elements: &[&str]) -> PlacementTerms {
        let element = |text: &&str| {
            let named = text.split_once('+');
            let (provider, other) = named.or_else(|| text.split_once(':')).expect("a provider");
            let other = Some(other.to_owned());
            let (cluster, cluster_label) = if named.is_some() { (other, None) } else { (None, other) };
            Element { cluster_provider: Some(provider.to_owned()), cluster, cluster_label, any_of: Vec::new() }
        };
        let mut terms = PlacementTerms { logical_cloud: [MemberKey("*+*".into())].into(), ..PlacementTerms::default() };
        terms.intent.any_of = elements.iter().map(element).collect();
        terms
    }

    #[test]
    fn members_are_the_same_with_an_index_of_labels_and_without() {
        let ledger = ledger();
        let index = OnceCell::new();
        for (elements, want) in [
            (&["*:east"][..], "a+1 b+1 b+2 c+2"),
            (&["b:east", "a:new", "*:new"], "a+1 a+2 b+1 b+2"),
            (&["c:new", "a:old"], ""),
            (&["c+1", "a:east", "a+1"], "a+1 c+1"),
            (&["c+*", "b:new"], "c+1 b+1 c+2"),
            (&["b+2", "c+1"], "c+1 b+2"),
        ] {
            let terms = terms(elements);
            for index in [None, Some(&index)] {
                let groups = groups_in(&ledger, index, &terms, &Cloud::of(&terms));
                let found: Vec<&str> = groups.iter().flat_map(Group::allowed).map(|room| room.key.0.as_str()).collect();
                assert_eq!(found.join(" "), want, "{elements:?}, with an index: {}", index.is_some());
            }
        }
    }
}
