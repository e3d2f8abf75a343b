//! What a changed placement intent means for the copies of an app that run. Pure.

use drover_api::scheduling::{Element, Intent, MemberKey};

use super::actions::clusters::LabelledMembers;
use crate::store::binding::Binding;

/// Which copies stay, and where others have to be started.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct IntentChange {
    /// The members whose copies stay.
    pub stays: Vec<MemberKey>,
    /// Where copies are missing, if any are.
    pub adds: Option<Intent>,
}

/// Compares the copies of an app with its new intent. Without copies everything is missing. `*` is that of a changed intent only if
/// placement has not resolved it ([`super::everywhere`]).
pub fn of(copies: &[&Binding], wanted: &Intent, labelled: &LabelledMembers) -> IntentChange {
    let members: Vec<MemberKey> = copies.iter().map(|copy| copy.member.clone()).collect();
    if members.is_empty() {
        return IntentChange { stays: members, adds: Some(wanted.clone()) };
    }
    if copies.iter().all(|copy| copy.request.terms.intent == *wanted) {
        return IntentChange { stays: members, adds: None };
    }
    compare(&members, &by_name(wanted, labelled))
}

/// Whether an intent names clusters by label.
pub fn names_labels(intent: &Intent) -> bool {
    let all = intent.all_of.iter().flat_map(|element| element.any_of.iter().chain([element])).chain(&intent.any_of);
    all.into_iter().any(|element| element.cluster_label.is_some())
}

/// The intent with labels replaced by the clusters of the logical cloud that have them now. A label that no cluster has stays, so that
/// placement says so.
fn by_name(intent: &Intent, labelled: &LabelledMembers) -> Intent {
    let named = |element: &Element| -> Vec<Element> {
        let (Some(provider), Some(label)) = (&element.cluster_provider, &element.cluster_label) else { return vec![element.clone()] };
        let has = labelled.0.iter().filter(|(member, labels)| member.provider() == provider && labels.contains(label));
        let named: Vec<Element> =
            has.map(|(member, _)| Element { cluster: Some(member.cluster().to_owned()), cluster_label: None, ..element.clone() }).collect();
        if named.is_empty() { vec![element.clone()] } else { named }
    };
    let all = |elements: &[Element]| elements.iter().flat_map(named).collect::<Vec<_>>();
    let nested = |element: &Element| Element { any_of: all(&element.any_of), ..element.clone() };
    Intent { all_of: all(&intent.all_of).iter().map(nested).collect(), any_of: all(&intent.any_of) }
}

fn compare(members: &[MemberKey], wanted: &Intent) -> IntentChange {
    let (mut stays, mut missing): (Vec<MemberKey>, Vec<Element>) = (Vec::new(), Vec::new());
    // What is mandatory by name first: a group of alternatives is satisfied by a cluster that is chosen already.
    for element in wanted.all_of.iter().filter(|element| element.any_of.is_empty()) {
        match named(element).filter(|member| members.contains(member)) {
            Some(member) => stays.push(member),
            None => missing.push(element.clone()),
        }
    }
    let mandatory = missing.clone();
    let groups = wanted.all_of.iter().map(|element| &element.any_of).chain([&wanted.any_of]).filter(|group| !group.is_empty());
    for group in groups {
        let alternatives: Vec<MemberKey> = group.iter().filter_map(named).collect();
        let chosen = stays.iter().any(|member| alternatives.contains(member)) || mandatory.iter().any(|element| group.contains(element));
        match members.iter().find(|member| alternatives.contains(member)) {
            _ if chosen => {}
            Some(member) => stays.push(member.clone()),
            None => missing.push(Element { any_of: group.clone(), ..Element::default() }),
        }
    }
    stays.sort();
    stays.dedup();
    let adds = (!missing.is_empty()).then(|| Intent { all_of: missing, any_of: Vec::new() });
    IntentChange { stays, adds }
}

/// The cluster of an element that names one.
fn named(element: &Element) -> Option<MemberKey> {
    Some(MemberKey::new(element.cluster_provider.as_deref()?, element.cluster.as_deref()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn element(cluster: &str) -> Element {
        Element { cluster_provider: Some("p".into()), cluster: Some(cluster.into()), ..Element::default() }
    }

    fn intent(all_of: &[&str], any_of: &[&str]) -> Intent {
        let list = |names: &[&str]| names.iter().map(|name| element(name)).collect();
        Intent { all_of: list(all_of), any_of: list(any_of) }
    }

    fn changed(running: &[&str], wanted: &Intent) -> (Vec<String>, Option<Intent>) {
        let members: Vec<MemberKey> = running.iter().map(|name| MemberKey::new("p", name)).collect();
        let change = compare(&members, wanted);
        (change.stays.iter().map(|member| member.cluster().to_owned()).collect(), change.adds)
    }

    #[test]
    fn copies_stay_where_the_new_intent_allows_them() {
        let group = |names: &[&str]| Element { any_of: names.iter().map(|name| element(name)).collect(), ..Element::default() };
        let adding = |elements: Vec<Element>| Some(Intent { all_of: elements, any_of: vec![] });
        for (running, wanted, stays, adds) in [
            (&["a"][..], intent(&[], &["a", "b"]), &["a"][..], None),
            (&["a"], intent(&[], &["b", "c"]), &[], adding(vec![group(&["b", "c"])])),
            (&["a"], intent(&["a", "b"], &[]), &["a"], adding(vec![element("b")])),
            (&["a", "b"], intent(&["a"], &[]), &["a"], None),
            (&["a", "b"], intent(&[], &["a", "b"]), &["a"], None),
            (&["a"], intent(&["b"], &["a", "b"]), &[], adding(vec![element("b")])),
            (&["a"], Intent { all_of: vec![element("a"), group(&["b", "c"])], any_of: vec![] }, &["a"], adding(vec![group(&["b", "c"])])),
        ] {
            let (kept, missing) = changed(running, &wanted);
            assert_eq!((kept.iter().map(String::as_str).collect::<Vec<_>>(), missing), (stays.to_vec(), adds), "{running:?} {wanted:?}");
        }
    }

    #[test]
    fn labels_are_the_clusters_that_have_them() {
        let label = |label: &str| Element { cluster_provider: Some("p".into()), cluster_label: Some(label.into()), ..Element::default() };
        let members = |of: &[(&str, &[&str])]| {
            let member =
                |(name, labels): &(&str, &[&str])| (MemberKey::new("p", name), labels.iter().map(|label| (*label).to_owned()).collect());
            LabelledMembers(of.iter().map(member).collect())
        };
        let labelled = members(&[("a", &["edge"]), ("b", &["edge", "gpu"]), ("c", &[])]);
        let wanted = Intent { all_of: vec![label("edge")], any_of: vec![element("c"), label("gpu")] };
        assert!(names_labels(&wanted) && !names_labels(&by_name(&wanted, &labelled)));
        assert_eq!(by_name(&wanted, &labelled), intent(&["a", "b"], &["c", "b"]));
        let nowhere = Intent { all_of: vec![label("moon")], any_of: vec![] };
        assert_eq!(by_name(&nowhere, &labelled), nowhere);
        assert_eq!(changed(&["c"], &nowhere), (vec![], Some(nowhere)), "placement says that there is none");
    }
}
