//! The choice of the policy and its safety rules: from the settings, or by what this node makes possible.

use std::time::Duration;

use anyhow::{Context, Result};
use drover_memguard::{BankSettings, GateBankSettings, Guard, Lever, PaperSettings, Policy, Sacrifices, Safety};

use super::Agent;
use super::event_gate::StreamState;
use crate::config::{FreezeBy, PolicyName, Run};
use crate::nri::NriLink;

/// The guard as the settings say.
pub(super) fn guard(run: &Run) -> Result<Guard> {
    let mut guard = match &run.settings {
        Some(path) => {
            let text = std::fs::read(path).with_context(|| format!("cannot read {}", path.display()))?;
            serde_json::from_slice(&text).with_context(|| format!("{} is no settings of a guard", path.display()))?
        }
        None => named(run.policy, run),
    };
    // Three polls: a reading older than that is none.
    guard.safety.max_age = guard.safety.max_age.max(run.common.poll * 3);
    if let Policy::Bank(bank) | Policy::GateBank(GateBankSettings { bank, .. }) = &mut guard.policy {
        bank.reaction = bank.reaction.max(run.common.poll * 2);
    }
    Ok(guard)
}

fn named(name: PolicyName, run: &Run) -> Guard {
    let policy = match name {
        PolicyName::None => Policy::None,
        PolicyName::Paper => Policy::Paper(PaperSettings::default()),
        PolicyName::Bank => Policy::Bank(BankSettings::default()),
        PolicyName::Auto | PolicyName::GateBank => Policy::GateBank(GateBankSettings::default()),
    };
    let mut safety = Safety::default();
    if name == PolicyName::Paper {
        safety.levers = vec![Lever::Quota];
        safety.high_first = false;
    }
    // Somebody must be able to carry them out.
    if run.kubeconfig.is_some() || run.in_cluster || run.sacrifice_by_runtime {
        safety.sacrifices = Sacrifices::Governed { every: Duration::from_secs(60), per_hour: 6 };
    }
    Guard { policy, safety }
}

impl Agent {
    /// Without a word about the policy: the gate where it works, else the bank alone.
    pub(super) async fn choose_policy(&mut self) {
        if self.run.settings.is_some() {
            self.policy_because = "the settings file says so".to_owned();
            return;
        }
        if self.run.policy != PolicyName::Auto {
            self.policy_because = "the settings say so".to_owned();
            return;
        }
        if self.plugin.linked().await == NriLink::Yes {
            self.policy_because = "starts can be gated: the runtime asks before it creates a container (NRI)".to_owned();
            tracing::info!(policy = self.guard.policy.name(), because = self.policy_because, "policy chosen");
            return;
        }
        let obstacle = if self.run.freeze_by == FreezeBy::Runtime {
            Some("starts are gated by the freezer file, and containers are frozen through the runtime here".to_owned())
        } else {
            match self.events.settled_state().await {
                StreamState::Unsupported(why) => Some(format!("the runtime tells nothing of starting tasks: {why}")),
                // A runtime that is not up yet will be; until then the bank works alone.
                StreamState::Trying | StreamState::Receiving | StreamState::Interrupted(_) => None,
            }
        };
        match obstacle {
            None => self.policy_because = "starts can be gated: the runtime tells of them, and there is a freezer".to_owned(),
            Some(obstacle) => {
                self.guard.policy = Policy::Bank(*self.guard.policy.bank().unwrap_or(&BankSettings::default()));
                self.policy_because = format!("starts cannot be gated: {obstacle}");
            }
        }
        tracing::info!(policy = self.guard.policy.name(), because = self.policy_because, "policy chosen");
    }
}
