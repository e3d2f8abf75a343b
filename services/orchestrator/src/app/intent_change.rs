//! What a changed placement intent means for the copies of an app that run. Pure.

use drover_api::scheduling::{Element, Intent, MemberKey};

use crate::store::binding::Binding;

/// Which copies stay, and where others have to be started.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct IntentChange {
    /// The members whose copies stay.
    pub stays: Vec<MemberKey>,
    /// Where copies are missing, if any are.
    pub adds: Option<Intent>,
}

/// Compares the copies of an app with its new intent. Without copies everything is missing. Labels and `*` are those of a changed intent
/// only if placement has not resolved them ([`super::everywhere`]).
///
/// # Errors
/// It cannot be said: the intent has changed and does not name its clusters.
pub fn of(copies: &[&Binding], wanted: &Intent) -> Result<IntentChange, String> {
    let members: Vec<MemberKey> = copies.iter().map(|copy| copy.member.clone()).collect();
    if members.is_empty() {
        return Ok(IntentChange { stays: members, adds: Some(wanted.clone()) });
    }
    if copies.iter().all(|copy| copy.request.terms.intent == *wanted) {
        return Ok(IntentChange { stays: members, adds: None });
    }
    compare(&members, wanted)
}

fn compare(members: &[MemberKey], wanted: &Intent) -> Result<IntentChange, String> {
    let (mut stays, mut missing): (Vec<MemberKey>, Vec<Element>) = (Vec::new(), Vec::new());
    // What is mandatory by name first: a group of alternatives is satisfied by a cluster that is chosen already.
    for element in wanted.all_of.iter().filter(|element| element.any_of.is_empty()) {
        let member = named(element)?;
        if members.contains(&member) { stays.push(member) } else { missing.push(element.clone()) }
    }
    let mandatory = missing.clone();
    let groups = wanted.all_of.iter().map(|element| &element.any_of).chain([&wanted.any_of]).filter(|group| !group.is_empty());
    for group in groups {
        let alternatives: Vec<MemberKey> = group.iter().map(named).collect::<Result<_, _>>()?;
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
    Ok(IntentChange { stays, adds })
}

fn named(element: &Element) -> Result<MemberKey, String> {
    match (&element.cluster_provider, &element.cluster, &element.cluster_label) {
        (Some(provider), Some(cluster), None) => Ok(MemberKey::new(provider, cluster)),
        (provider, _, label) => Err(format!(
            "its placement intent has changed and names the clusters of {} by the label {}; an update follows only changes that name \
             clusters: name them, or terminate and instantiate the group",
            provider.as_deref().unwrap_or_default(),
            label.as_deref().unwrap_or_default()
        )),
    }
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
        let change = compare(&members, wanted).unwrap();
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
    fn changed_intent_with_a_label_is_refused() {
        let label = Element { cluster_provider: Some("p".into()), cluster_label: Some("edge".into()), ..Element::default() };
        let refused = compare(&[MemberKey::new("p", "a")], &Intent { all_of: vec![], any_of: vec![label] }).unwrap_err();
        assert!(refused.contains("label edge"), "{refused}");
    }
}
