//! Which cluster gets a new version of an agent next. Pure.
//!
//! One cluster at a time; the next one when all that have the new version are ready. When a version fails in a cluster, no other gets
//! it, and those that have it go back.

use std::collections::BTreeMap;

use drover_api::scheduling::MemberKey;

/// A cluster that is to run these objects.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target {
    pub member: MemberKey,
    /// Digest of the objects.
    pub digest: String,
    /// Why the cluster cannot be changed now.
    pub unavailable: Option<String>,
    /// Why no new copy may start there.
    pub closed: Option<String>,
}

/// What is known of a copy.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Copy {
    /// Digest of what runs.
    pub runs: Option<String>,
    /// Digest of the last attempt.
    pub tried: Option<String>,
    /// Why the last attempt failed.
    pub failed: Option<String>,
    /// Whether an attempt that failed may be repeated by now.
    pub rested: bool,
    /// An operation is changing it.
    pub busy: bool,
    /// Whether what runs is ready; unknown before its cluster has reported.
    pub ready: Option<bool>,
}

/// How far a rollout is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// Clusters get the new order one after the other.
    Rolling,
    /// The order reached all its clusters once.
    Done,
    /// It failed in a cluster: what has it goes back to the order before.
    Stopped,
}

/// What to do next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Next {
    /// Give this cluster its objects.
    Start(MemberKey),
    /// Nothing for now, for this reason.
    Wait(String),
    /// The order failed in a cluster.
    Stop(String),
    /// All clusters have it.
    Settled,
}

/// What to do next for these clusters.
pub fn next(stage: Stage, paused: bool, targets: &[Target], copies: &BTreeMap<MemberKey, Copy>) -> Next {
    let nothing = Copy::default();
    let of = |target: &Target| copies.get(&target.member).unwrap_or(&nothing);
    let failed = |target: &Target| of(target).failed.as_deref().filter(|_| of(target).tried.as_ref() == Some(&target.digest));
    if stage == Stage::Rolling
        && let Some((target, why)) = targets.iter().find_map(|target| Some((target, failed(target)?)))
    {
        return Next::Stop(format!("{}: {why}", target.member));
    }
    if let Some(busy) = targets.iter().find(|target| of(target).busy) {
        return Next::Wait(format!("{} is being changed", busy.member));
    }
    if stage == Stage::Rolling {
        let changed = |target: &&Target| of(target).runs.as_ref() == Some(&target.digest) && target.unavailable.is_none();
        if let Some(target) = targets.iter().filter(changed).find(|target| of(target).ready != Some(true)) {
            return Next::Wait(format!("{} has it but is not ready", target.member));
        }
    }
    let open = targets.iter().filter(|target| of(target).runs.as_ref() != Some(&target.digest));
    let open = open.filter(|target| failed(target).is_none() || (stage != Stage::Rolling && of(target).rested));
    let mut hindered = Vec::new();
    for target in open {
        let closed = target.closed.as_ref().filter(|_| of(target).runs.is_none());
        match target.unavailable.as_ref().or(closed) {
            Some(why) => hindered.push(format!("{} {why}", target.member)),
            None if paused && stage != Stage::Stopped => return Next::Wait("it is paused".to_owned()),
            None => return Next::Start(target.member.clone()),
        }
    }
    if hindered.is_empty() { Next::Settled } else { Next::Wait(hindered.join("; ")) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn member(name: &str) -> MemberKey {
        MemberKey::new("onprem", name)
    }

    fn targets(digest: &str) -> Vec<Target> {
        ["a", "b", "c"].map(|name| Target { member: member(name), digest: digest.into(), unavailable: None, closed: None }).into()
    }

    fn runs(digest: &str) -> Copy {
        Copy { runs: Some(digest.into()), tried: Some(digest.into()), ready: Some(true), ..Copy::default() }
    }

    fn copies(of: &[(&str, Copy)]) -> BTreeMap<MemberKey, Copy> {
        of.iter().map(|(name, copy)| (member(name), copy.clone())).collect()
    }

    #[test]
    fn one_cluster_after_the_other_and_only_while_those_before_are_ready() {
        let next = |copies: &[(&str, Copy)]| super::next(Stage::Rolling, false, &targets("2"), &self::copies(copies));
        assert_eq!(next(&[("a", runs("1"))]), Next::Start(member("a")));
        let busy = Copy { busy: true, tried: Some("2".into()), ..runs("1") };
        assert!(matches!(next(&[("a", busy)]), Next::Wait(why) if why.contains("onprem+a")));
        assert_eq!(next(&[("a", runs("2"))]), Next::Start(member("b")));
        for ready in [Some(false), None] {
            assert!(matches!(next(&[("a", Copy { ready, ..runs("2") })]), Next::Wait(_)));
        }
        assert_eq!(next(&[("a", runs("2")), ("b", runs("2")), ("c", runs("2"))]), Next::Settled);
    }

    #[test]
    fn failure_stops_the_rollout_and_what_has_the_version_goes_back() {
        let failed = Copy { tried: Some("2".into()), failed: Some("crashes".into()), ..runs("1") };
        let state = copies(&[("a", runs("2")), ("b", failed), ("c", runs("1"))]);
        assert_eq!(next(Stage::Rolling, false, &targets("2"), &state), Next::Stop("onprem+b: crashes".into()));
        assert_eq!(next(Stage::Stopped, false, &targets("1"), &state), Next::Start(member("a")));
        // A pause does not keep a version that failed.
        assert_eq!(next(Stage::Stopped, true, &targets("1"), &state), Next::Start(member("a")));
    }

    #[test]
    fn clusters_that_cannot_be_changed_are_left_out_until_they_can() {
        let mut targets = targets("2");
        targets[0].unavailable = Some("is Unreachable".into());
        targets[1].closed = Some("is cordoned".into());
        let state = copies(&[("c", runs("2"))]);
        let Next::Wait(why) = next(Stage::Rolling, false, &targets, &state) else { panic!("it waits") };
        assert_eq!(why, "onprem+a is Unreachable; onprem+b is cordoned");
        // What runs in a cordoned cluster is updated there.
        assert_eq!(next(Stage::Rolling, false, &targets, &copies(&[("b", runs("1"))])), Next::Start(member("b")));
    }

    #[test]
    fn paused_rollout_starts_nothing() {
        assert_eq!(next(Stage::Rolling, true, &targets("2"), &copies(&[("a", runs("2"))])), Next::Wait("it is paused".into()));
    }

    #[test]
    fn cluster_that_joins_later_and_fails_is_tried_again_after_a_while() {
        let failed = |rested| Copy { tried: Some("2".into()), failed: Some("crashes".into()), rested, ..Copy::default() };
        let state = |rested| copies(&[("a", runs("2")), ("b", runs("2")), ("c", failed(rested))]);
        assert_eq!(next(Stage::Done, false, &targets("2"), &state(false)), Next::Settled);
        assert_eq!(next(Stage::Done, false, &targets("2"), &state(true)), Next::Start(member("c")));
    }
}
