//! Pushed statistics, kept per policy until its next observation.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, PoisonError};

use drover_autoscaling::kpa::{Collector, KpaMetric, KpaSpec};
use drover_autoscaling::{Carried, Reading, Samples, ScalingState};
use tokio::sync::Notify;

use crate::wire::Push;

/// Namespace and name of a policy.
pub type Key = (String, String);

/// Pushed statistics by policy.
#[derive(Clone, Debug, Default)]
pub struct Inbox(Arc<Mutex<HashMap<Key, PushedStatistics>>>);

/// What was pushed for one policy. All times are in seconds, on the clock that the callers pass as `now`.
#[derive(Debug)]
struct PushedStatistics {
    /// The policy's uid.
    uid: Option<String>,
    /// The windows of the policy `kpa`, and the metric that they hold.
    kpa: Option<(KpaMetric, Collector)>,
    /// By name: when the value was pushed, and the value.
    values: BTreeMap<String, (f64, f64)>,
    /// When expired requests were pushed last, and their number since they were last read.
    expired: Option<(f64, f64)>,
    /// Told when requests arrive, so that the policy is decided on before its next period.
    arrived: Arc<Notify>,
}

impl Inbox {
    /// Begins to accept statistics of a policy, or goes on with changed settings. What was pushed for another policy of this name, which has
    /// another uid, is forgotten. The returned notification is sent when requests arrive.
    pub fn open(&self, key: &Key, uid: Option<&String>, kpa: Option<&KpaSpec>) -> Arc<Notify> {
        let mut boxes = self.lock();
        if boxes.get(key).is_some_and(|other| other.uid.as_ref() != uid) {
            boxes.remove(key);
        }
        let own = boxes.entry(key.clone()).or_insert_with(|| PushedStatistics {
            uid: uid.cloned(),
            kpa: None,
            values: BTreeMap::new(),
            expired: None,
            arrived: Arc::default(),
        });
        match (kpa, &mut own.kpa) {
            (Some(spec), Some((metric, collector))) if *metric == spec.metric => collector.resize(spec),
            (Some(spec), slot) => *slot = Some((spec.metric, Collector::new(spec))),
            (None, slot) => *slot = None,
        }
        own.arrived.clone()
    }

    /// Puts samples of another cluster into the windows of a policy, unless some of this one are in them.
    pub fn refill(&self, key: &Key, now: f64, samples: &Samples) {
        if let Some((metric, collector)) = self.lock().get_mut(key).and_then(|own| own.kpa.as_mut())
            && *metric == samples.metric
            && collector.samples().is_empty()
        {
            let usable = samples.values.iter().filter(|(at, value)| *at <= now && value.is_finite() && *value >= 0.0);
            usable.for_each(|(at, value)| collector.record(*at, *value));
        }
    }

    /// What is remembered of a policy at `now`, with its windows.
    pub fn remembered(&self, key: &Key, state: &ScalingState, now: f64) -> Carried {
        let boxes = self.lock();
        let windows = boxes.get(key).and_then(|own| own.kpa.as_ref()).map(|(metric, collector)| (*metric, collector));
        Carried::of(state, now, windows)
    }

    /// Forgets a policy, unless one with another uid has taken its name.
    pub fn close(&self, key: &Key, uid: Option<&String>) {
        let mut boxes = self.lock();
        if boxes.get(key).is_some_and(|own| own.uid.as_ref() == uid) {
            boxes.remove(key);
        }
    }

    /// Accepts a push at `now`. False: this agent does not know the policy.
    pub fn take(&self, push: &Push, now: f64) -> bool {
        let mut boxes = self.lock();
        let Some(own) = boxes.get_mut(&(push.namespace.clone(), push.policy.clone())) else { return false };
        if let (Some(report), Some((metric, collector))) = (&push.requests, &mut own.kpa) {
            collector.record_report(now, *metric, report);
            if report.average_concurrency > 0.0 || report.count > 0.0 {
                own.arrived.notify_one();
            }
        }
        for (name, value) in push.values.iter().filter(|(_, value)| value.is_finite()) {
            if name == "expired" {
                let before = own.expired.map_or(0.0, |(_, before)| before);
                own.expired = Some((now, before + value));
            } else {
                own.values.insert(name.clone(), (now, *value));
            }
        }
        true
    }

    /// The averages of both windows.
    pub fn windows(&self, key: &Key, now: f64) -> (Reading<f64>, Reading<f64>) {
        let none = || Reading::Absent("nothing was pushed".to_owned());
        self.lock().get(key).and_then(|own| own.kpa.as_ref()).map_or_else(|| (none(), none()), |(_, collector)| collector.read(now))
    }

    /// Adds one sample to both windows.
    pub fn sample(&self, key: &Key, now: f64, value: f64) {
        if let Some((_, collector)) = self.lock().get_mut(key).and_then(|own| own.kpa.as_mut()) {
            collector.record(now, value);
        }
    }

    /// A named value, with the age of its push.
    pub fn value(&self, key: &Key, name: &str, now: f64, stale: f64) -> Reading<f64> {
        let pushed = self.lock().get(key).and_then(|own| own.values.get(name).copied());
        pushed.map_or_else(|| Reading::Absent(format!("`{name}` was not pushed")), |(at, value)| Reading::taken(value, at, now, stale))
    }

    /// Expired requests since the last call; absent if none were pushed, stale if the last push is too old.
    pub fn expired(&self, key: &Key, now: f64, stale: f64) -> Reading<f64> {
        let mut boxes = self.lock();
        let Some(pushed) = boxes.get_mut(key).and_then(|own| own.expired.as_mut()) else {
            return Reading::Absent("`expired` was not pushed".to_owned());
        };
        let (at, sum) = *pushed;
        pushed.1 = 0.0;
        Reading::taken(sum, at, now, stale)
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, HashMap<Key, PushedStatistics>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn policy_that_was_made_again_keeps_its_statistics_when_the_former_one_is_forgotten() {
        let (inbox, key) = (Inbox::default(), ("shop".to_owned(), "web".to_owned()));
        let (former, again) = ("former".to_owned(), "again".to_owned());
        let values = BTreeMap::from([("queue".to_owned(), 5.0)]);
        let push = Push { namespace: key.0.clone(), policy: key.1.clone(), reporter: String::new(), requests: None, values };
        inbox.open(&key, Some(&former), None);
        assert!(inbox.take(&push, 1.0));
        inbox.open(&key, Some(&again), None);
        assert!(inbox.value(&key, "queue", 2.0, 10.0).trouble().is_some(), "it was pushed for the former one");
        assert!(inbox.take(&push, 2.0));
        inbox.close(&key, Some(&former));
        assert_eq!(inbox.value(&key, "queue", 2.0, 10.0).trouble(), None);
        inbox.close(&key, Some(&again));
        assert!(!inbox.take(&push, 3.0));
    }
}
