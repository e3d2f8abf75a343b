//! Elects which of several agents acts, with a Lease that the holder renews.
//!
//! Invariant: a holder stops acting two thirds of the Lease's duration after the *start* of its last successful renewal, by its own
//! clock; another agent takes over no earlier than one whole duration after it *saw* the last change, by its own clock. So no two agents act
//! at the same time, however their clocks are set, and a holder that was suspended finds that its time is over before it writes.

use std::sync::Arc;
use std::time::Duration;

use anyhow::Result;
use drover_agent::{AGENT, REPORT};
use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta};
use kube::Api;
use kube::api::PostParams;
use tokio::sync::watch;
use tokio::time::{Instant, sleep, sleep_until, timeout};

/// Until when this agent may act; none: it may not act.
#[derive(Clone, Debug)]
pub struct Leadership(watch::Receiver<Option<Instant>>);

impl Leadership {
    /// The time for which this agent may still act.
    pub fn remaining(&self) -> Option<Duration> {
        let until = (*self.0.borrow())?;
        until.checked_duration_since(Instant::now()).filter(|left| !left.is_zero())
    }

    /// Waits until this agent may act; never returns if the election has ended.
    pub async fn gained(&mut self) {
        while self.remaining().is_none() {
            if self.0.changed().await.is_err() {
                std::future::pending::<()>().await;
            }
        }
    }

    /// Waits until this agent may no longer act.
    pub async fn lost(&mut self) {
        while self.remaining().is_some() {
            let until = *self.0.borrow();
            let Some(until) = until else { return };
            tokio::select! {
                () = sleep_until(until) => {}
                changed = self.0.changed() => if changed.is_err() { return },
            }
        }
    }
}

/// A candidate in the election of one Lease. A clone is the same candidate, which goes on after the first one failed.
#[derive(Clone)]
pub struct Election {
    api: Api<Lease>,
    name: String,
    identity: String,
    duration: Duration,
    until: watch::Sender<Option<Instant>>,
    /// Resource version of another agent's Lease, and when this agent first saw it.
    seen: Option<(String, Instant)>,
    /// Identity of the holder, by which others find the acting agent.
    holder: watch::Sender<Option<String>>,
    /// What the holder reports with each renewal.
    report: Option<ReportSource>,
}

/// Makes the report of the agent that acts.
pub type ReportSource = Arc<dyn Fn() -> String + Send + Sync>;

impl Election {
    /// Creates a candidate, and the receivers that tell whether it may act and which agent acts.
    pub fn new(api: Api<Lease>, name: String, identity: String, duration: Duration) -> (Self, Leadership, watch::Receiver<Option<String>>) {
        let (until, leadership) = watch::channel(None);
        let (holder, acting) = watch::channel(None);
        (Self { api, name, identity, duration, until, seen: None, holder, report: None }, Leadership(leadership), acting)
    }

    /// Writes what `report` returns into the Lease with each renewal: the Lease is then also a sign of life for whoever looks from outside,
    /// at no further request.
    pub fn reporting(self, report: ReportSource) -> Self {
        Self { report: Some(report), ..self }
    }

    /// Holds the Lease or waits for it until `stop`, then releases it.
    pub async fn run(mut self, stop: tokio_util::sync::CancellationToken) {
        let mut complained = false;
        loop {
            let start = Instant::now();
            match timeout(self.duration / 3, self.attempt(start)).await {
                Ok(Ok(held)) => {
                    complained = false;
                    if !held {
                        self.until.send_replace(None);
                    }
                }
                failed => {
                    if !complained {
                        let error = match failed {
                            Ok(Err(error)) => format!("{error:#}"),
                            Ok(Ok(_)) | Err(_) => "no answer in time".to_owned(),
                        };
                        tracing::warn!(error, lease = self.name, "the Lease cannot be read or renewed; trying again");
                    }
                    complained = true;
                }
            }
            tokio::select! {
                () = sleep(self.duration.mul_f64(2.0 / 15.0)) => {}
                () = stop.cancelled() => break,
            }
        }
        if self.until.send_replace(None).is_some()
            && let Err(error) = timeout(self.duration / 3, self.release()).await
        {
            tracing::warn!(%error, "the Lease was not released: other agents wait until it expires");
        }
    }

    /// Tries once to take or renew the Lease. True: it is held, counted from `start`.
    async fn attempt(&mut self, start: Instant) -> Result<bool> {
        let held = match self.api.get_opt(&self.name).await? {
            None => {
                let metadata = self.told(ObjectMeta { name: Some(self.name.clone()), ..Default::default() });
                let lease = Lease { metadata, spec: Some(self.claim(None)) };
                written(self.api.create(&PostParams::default(), &lease).await)?
            }
            Some(lease) if self.may_take(&lease) => {
                let lease = Lease { spec: Some(self.claim(lease.spec.as_ref())), metadata: self.told(lease.metadata) };
                written(self.api.replace(&self.name, &PostParams::default(), &lease).await)?
            }
            Some(lease) => {
                self.holder.send_replace(lease.spec.and_then(|spec| spec.holder_identity));
                false
            }
        };
        if held {
            self.seen = None;
            let first = self.until.send_replace(Some(start + self.duration.mul_f64(2.0 / 3.0))).is_none();
            self.holder.send_replace(Some(self.identity.clone()));
            if first {
                tracing::info!(lease = self.name, identity = self.identity, "this agent acts");
            }
        }
        Ok(held)
    }

    /// The metadata with the report.
    fn told(&self, mut metadata: ObjectMeta) -> ObjectMeta {
        if let Some(report) = &self.report {
            metadata.labels.get_or_insert_default().insert(AGENT.to_owned(), "autoscaler".to_owned());
            metadata.annotations.get_or_insert_default().insert(REPORT.to_owned(), report());
        }
        metadata
    }

    /// Whether this agent may take the Lease: it holds it, nobody does, or it was not renewed for its whole duration while this agent watched.
    fn may_take(&mut self, lease: &Lease) -> bool {
        let spec = lease.spec.clone().unwrap_or_default();
        match spec.holder_identity.as_deref() {
            None | Some("") => return true,
            Some(holder) if holder == self.identity => return true,
            Some(_) => {}
        }
        let version = lease.metadata.resource_version.clone().unwrap_or_default();
        let duration = Duration::from_secs(u64::try_from(spec.lease_duration_seconds.unwrap_or_default()).unwrap_or_default());
        match &self.seen {
            Some((before, since)) if *before == version => since.elapsed() >= duration.max(self.duration),
            _ => {
                self.seen = Some((version, Instant::now()));
                false
            }
        }
    }

    fn claim(&self, before: Option<&LeaseSpec>) -> LeaseSpec {
        let now = Some(MicroTime(Timestamp::now()));
        let ours = before.is_some_and(|spec| spec.holder_identity.as_ref() == Some(&self.identity));
        let transitions = before.and_then(|spec| spec.lease_transitions).unwrap_or_default();
        LeaseSpec {
            holder_identity: Some(self.identity.clone()),
            lease_duration_seconds: i32::try_from(self.duration.as_secs()).ok(),
            acquire_time: if ours { before.and_then(|spec| spec.acquire_time.clone()) } else { now.clone() },
            renew_time: now,
            lease_transitions: Some(if ours || before.is_none() { transitions } else { transitions.saturating_add(1) }),
            ..Default::default()
        }
    }

    /// Clears the holder, so that the next agent need not wait.
    async fn release(&self) -> Result<()> {
        let lease = self.api.get(&self.name).await?;
        let spec = lease.spec.clone().unwrap_or_default();
        if spec.holder_identity.as_ref() == Some(&self.identity) {
            let spec = LeaseSpec { holder_identity: Some(String::new()), ..spec };
            self.api.replace(&self.name, &PostParams::default(), &Lease { spec: Some(spec), ..lease }).await?;
        }
        Ok(())
    }
}

/// A conflict means that another agent wrote first.
fn written(result: kube::Result<Lease>) -> kube::Result<bool> {
    match result {
        Ok(_) => Ok(true),
        Err(kube::Error::Api(status)) if status.code == 409 => Ok(false),
        Err(error) => Err(error),
    }
}
