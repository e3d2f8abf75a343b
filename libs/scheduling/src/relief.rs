//! When apps of a project are moved although nobody needs their room: what agents report of them has been too high for a time.
//!
//! Decides only whether it is time; which app moves where is a plan like any other. A value that is not reported ends the time: nothing
//! is moved on what is not known. No clock; the caller says what time it is.

use std::collections::HashMap;

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::MemberKey;

/// The reasons for which a policy moves apps without a newcomer.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct ReliefRules {
    /// Each is a reason by itself.
    pub when: Vec<ReliefRule>,
    /// Seconds after such a move, or an attempt, for which no other app of the project is moved off the same cluster for such a reason.
    #[serde(default = "ten_minutes")]
    pub rest_seconds: u32,
}

/// A value that has been too high for a time.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct ReliefRule {
    pub metric: ReliefMetric,
    /// It begins to count when the value is above this.
    pub above: f64,
    /// It counts until the value is below this; absent: until it is not above `above`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub until: Option<f64>,
    /// Seconds for which it must have counted without interruption.
    #[serde(default = "two_minutes")]
    pub for_seconds: u32,
}

/// What agents report of an app.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum ReliefMetric {
    /// Memory in use in percent, on the fullest node where its pods run.
    MemoryPressure,
    /// Pods that its load needs beyond the upper bounds of its scaling policies.
    UnmetPods,
}

fn ten_minutes() -> u32 {
    600
}
fn two_minutes() -> u32 {
    120
}

impl ReliefRules {
    /// What is wrong with the rules, a sentence each.
    pub fn wrong(&self) -> Vec<String> {
        let mut wrong = Vec::new();
        if self.when.is_empty() {
            wrong.push("when names no reason; leave planned moves out to switch them off".to_owned());
        }
        for (n, rule) in self.when.iter().enumerate() {
            if !rule.above.is_finite() || rule.above < 0.0 || rule.until.is_some_and(|until| !(0.0..=rule.above).contains(&until)) {
                wrong.push("above must be 0 or more, and until no more than above".to_owned());
            }
            if self.when[..n].iter().any(|before| before.metric == rule.metric) {
                wrong.push("a metric is named twice".to_owned());
            }
        }
        if self.rest_seconds < 60 {
            wrong.push("restSeconds must be 60 or more".to_owned());
        }
        wrong
    }
}

impl ReliefRule {
    /// The value from which on it no longer counts.
    fn until(&self) -> f64 {
        self.until.unwrap_or(self.above)
    }
}

/// What is reported of one app.
#[derive(Clone, Debug, PartialEq)]
pub struct ReliefReading {
    pub claim: Uuid,
    pub member: MemberKey,
    pub memory_pressure: Option<f64>,
    pub unmet_pods: Option<f64>,
}

impl ReliefReading {
    fn of(&self, metric: ReliefMetric) -> Option<f64> {
        match metric {
            ReliefMetric::MemoryPressure => self.memory_pressure,
            ReliefMetric::UnmetPods => self.unmet_pods,
        }
    }
}

/// A cluster from which an app should be moved.
#[derive(Clone, Debug, PartialEq)]
pub struct ReliefDue {
    pub member: MemberKey,
    /// The apps of which it is time that one is moved.
    pub claims: Vec<Uuid>,
    /// Clusters that are no better.
    pub avoid: Vec<MemberKey>,
    /// For people.
    pub reason: String,
}

/// An app of which a value is too high, whether or not it is time already.
#[derive(Clone, Debug, PartialEq)]
pub struct Suffering {
    pub claim: Uuid,
    pub member: MemberKey,
    /// For people.
    pub reason: String,
    /// For how long it has counted.
    pub seconds: u32,
    /// For how long it must count.
    pub for_seconds: u32,
}

/// What there is to say of the apps of a project.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ReliefLook {
    pub due: Vec<ReliefDue>,
    /// Everything that counts; those that are due, too.
    pub suffering: Vec<Suffering>,
}

/// Remembers since when values are too high: by project, app and metric.
#[derive(Clone, Debug, Default)]
pub struct ReliefWatch(HashMap<String, HashMap<(Uuid, ReliefMetric), f64>>);

impl ReliefWatch {
    /// Takes in what is reported at `now` (seconds) of the apps of a project, and returns what counts and what is due.
    /// `everywhere`: the same of the apps of all projects.
    pub fn look(
        &mut self,
        now: f64,
        project: &str,
        rules: &[ReliefRule],
        own: &[ReliefReading],
        everywhere: &[ReliefReading],
    ) -> ReliefLook {
        let before = self.0.remove(project).unwrap_or_default();
        let mut counted = HashMap::new();
        let ReliefLook { mut due, mut suffering } = ReliefLook::default();
        for rule in rules {
            for reading in own {
                let key = (reading.claim, rule.metric);
                let since = before.get(&key).copied();
                let Some(value) = reading.of(rule.metric) else { continue };
                if !(value > rule.above || since.is_some() && value >= rule.until()) {
                    continue;
                }
                let since = since.unwrap_or(now);
                counted.insert(key, since);
                suffering.push(Suffering {
                    claim: reading.claim,
                    member: reading.member.clone(),
                    reason: sentence(rule, value, now - since),
                    // A float becomes the nearest integer that there is.
                    seconds: (now - since) as u32,
                    for_seconds: rule.for_seconds,
                });
                if now - since < f64::from(rule.for_seconds) {
                    continue;
                }
                match due.iter_mut().find(|due| due.member == reading.member) {
                    Some(due) if due.claims.contains(&reading.claim) => {}
                    Some(due) => due.claims.push(reading.claim),
                    None => due.push(ReliefDue {
                        member: reading.member.clone(),
                        claims: vec![reading.claim],
                        avoid: no_better(rule, &reading.member, everywhere),
                        reason: sentence(rule, value, now - since),
                    }),
                }
            }
        }
        self.0.insert(project.to_owned(), counted);
        ReliefLook { due, suffering }
    }

    /// Forgets projects that have no rules any more.
    pub fn retain(&mut self, has_rules: impl Fn(&str) -> bool) {
        self.0.retain(|project, _| has_rules(project));
    }
}

/// The other clusters where some app has a value that would count.
fn no_better(rule: &ReliefRule, here: &MemberKey, everywhere: &[ReliefReading]) -> Vec<MemberKey> {
    let high = |reading: &&ReliefReading| reading.of(rule.metric).is_some_and(|value| value >= rule.until());
    let mut members: Vec<MemberKey> = match rule.metric {
        ReliefMetric::MemoryPressure => everywhere.iter().filter(high).map(|reading| reading.member.clone()).collect(),
        // An app that lacks pods in one cluster says nothing of others there.
        ReliefMetric::UnmetPods => Vec::new(),
    };
    members.retain(|member| member != here);
    members.sort();
    members.dedup();
    members
}

fn sentence(rule: &ReliefRule, value: f64, seconds: f64) -> String {
    match rule.metric {
        ReliefMetric::MemoryPressure => {
            format!("the memory of its fullest node is in use by {value:.0} %, above {:.0} % for {seconds:.0} s", rule.above)
        }
        ReliefMetric::UnmetPods => {
            format!("its load needs {value:.0} pods more than it may have, more than {:.0} for {seconds:.0} s", rule.above)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rule(until: Option<f64>) -> ReliefRule {
        ReliefRule { metric: ReliefMetric::MemoryPressure, above: 90.0, until, for_seconds: 120 }
    }

    fn reading(claim: u128, member: &str, memory: Option<f64>) -> ReliefReading {
        ReliefReading { claim: Uuid::from_u128(claim), member: MemberKey::new("p", member), memory_pressure: memory, unmet_pods: None }
    }

    fn look(watch: &mut ReliefWatch, now: f64, until: Option<f64>, memory: Option<f64>) -> usize {
        let own = [reading(1, "a", memory)];
        watch.look(now, "shop", &[rule(until)], &own, &own).due.len()
    }

    #[test]
    fn it_is_due_after_the_time_without_interruption() {
        let mut watch = ReliefWatch::default();
        assert_eq!(look(&mut watch, 0.0, None, Some(95.0)), 0);
        assert_eq!(look(&mut watch, 60.0, None, Some(89.0)), 0);
        assert_eq!(look(&mut watch, 70.0, None, Some(95.0)) + look(&mut watch, 189.0, None, Some(91.0)), 0);
        assert_eq!(look(&mut watch, 190.0, None, Some(91.0)), 1);
        // Nobody reports any more: nothing is due, and the time begins anew.
        assert_eq!(look(&mut watch, 200.0, None, None) + look(&mut watch, 210.0, None, Some(99.0)), 0);
    }

    #[test]
    fn it_counts_until_the_lower_bound() {
        let mut watch = ReliefWatch::default();
        assert_eq!(look(&mut watch, 0.0, Some(80.0), Some(95.0)), 0);
        assert_eq!(look(&mut watch, 60.0, Some(80.0), Some(81.0)), 0);
        assert_eq!(look(&mut watch, 120.0, Some(80.0), Some(81.0)), 1, "between the bounds it goes on");
        assert_eq!(look(&mut watch, 130.0, Some(80.0), Some(79.0)) + look(&mut watch, 140.0, Some(80.0), Some(85.0)), 0);
    }

    #[test]
    fn due_says_which_apps_and_which_clusters_are_no_better() {
        let mut watch = ReliefWatch::default();
        let own = [reading(1, "a", Some(95.0)), reading(2, "a", Some(93.0)), reading(3, "b", Some(10.0))];
        let all = [own.as_slice(), &[reading(4, "c", Some(92.0)), reading(5, "d", None)]].concat();
        let begun = watch.look(0.0, "shop", &[rule(None)], &own, &all);
        let counting: Vec<_> = begun.suffering.iter().map(|one| (one.claim.as_u128(), one.seconds, one.for_seconds)).collect();
        assert_eq!((counting, begun.due.len()), (vec![(1, 0, 120), (2, 0, 120)], 0), "people may know before it is time");
        let ReliefLook { due, suffering } = watch.look(130.0, "shop", &[rule(None)], &own, &all);
        assert_eq!((suffering.len(), suffering[0].seconds), (2, 130));
        assert_eq!(due.len(), 1);
        assert_eq!((due[0].claims.len(), due[0].avoid.as_slice()), (2, &[MemberKey::new("p", "c")][..]));
        assert_eq!(due[0].reason, "the memory of its fullest node is in use by 95 %, above 90 % for 130 s");
        watch.retain(|_| false);
        assert!(watch.look(140.0, "shop", &[rule(None)], &own, &all).due.is_empty());
    }

    #[test]
    fn rules_that_contradict_themselves_are_named() {
        let rules = |when, rest_seconds| ReliefRules { when, rest_seconds }.wrong().len();
        assert_eq!(rules(vec![rule(Some(80.0))], 600), 0);
        assert_eq!(rules(vec![], 600), 1);
        assert_eq!(rules(vec![rule(Some(91.0))], 600), 1);
        assert_eq!(rules(vec![rule(None), rule(None)], 10), 2);
    }
}
