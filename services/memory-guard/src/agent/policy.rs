//! The choice of the policy and its safety rules: from the settings, or by what this node makes possible.

use std::time::Duration;

use anyhow::{Context, Result};
use drover_memguard::{BankSettings, GateBankSettings, Guard, Lever, PaperSettings, Policy, Sacrifices, Safety};

use super::Agent;
use super::event_gate::StreamState;
use crate::config::{FreezeBy, PolicyName, Run};
use crate::nri::NriLink;

/// The guard according to the settings.
pub(super) fn guard(run: &Run) -> Result<Guard> {
    let mut guard = match &run.settings {
        Some(path) => {
            let text = std::fs::read(path).with_context(|| format!("cannot read {}", path.display()))?;
            serde_json::from_slice(&text).with_context(|| format!("{} does not contain the settings of a guard", path.display()))?
        }
        None => return Ok(named(run.policy, run)),
    };
    respect_poll(&mut guard, run);
    Ok(guard)
}

/// Adapts time limits to the poll: within them the agent must have observed and acted again.
fn respect_poll(guard: &mut Guard, run: &Run) {
    // A reading counts for at least three polls.
    guard.safety.max_age = guard.safety.max_age.max(run.common.poll * 3);
    if let Policy::Bank(bank) | Policy::GateBank(GateBankSettings { bank, .. }) = &mut guard.policy {
        bank.reaction = bank.reaction.max(run.common.poll * 2);
    }
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
    // Sacrifices are allowed only where they can be carried out.
    if run.kubeconfig.is_some() || run.in_cluster || run.sacrifice_by_runtime {
        safety.sacrifices = Sacrifices::Governed { every: Duration::from_secs(60), per_hour: 6 };
    }
    let mut guard = Guard { policy, safety };
    respect_poll(&mut guard, run);
    guard
}

impl Agent {
    /// Chooses the policy when the agent starts. With `auto` it waits briefly for the runtime, so that the first choice is the right one
    /// wherever the runtime answers.
    pub(super) async fn choose_policy(&mut self) {
        if self.run.settings.is_some() {
            self.policy_because = "the settings file says so".to_owned();
        } else if self.run.policy != PolicyName::Auto {
            self.policy_because = "the settings say so".to_owned();
        } else {
            self.policy_because = "the runtime has not answered yet, so it is not known whether starts can be gated".to_owned();
            if self.plugin.linked().await != NriLink::Yes {
                self.events.settled_state().await;
            }
            self.adapt_policy();
        }
    }

    /// With `auto`: the gate where starts can be gated, else the bank alone. Called at every poll, because a runtime may start after the
    /// agent, and may be replaced by one that offers more or less.
    pub(super) fn adapt_policy(&mut self) {
        if self.run.settings.is_some() || self.run.policy != PolicyName::Auto {
            return;
        }
        let Some((policy, because)) = auto_policy(self.run.freeze_by, &self.plugin.link(), &self.events.state()) else { return };
        if self.policy_because == because {
            return;
        }
        let adapted = named(policy, &self.run);
        if self.guard != adapted {
            // The bank never admits what the gate holds.
            self.release_all();
            self.guard = adapted;
        }
        self.policy_because = because;
        tracing::info!(policy = self.guard.policy.name(), because = self.policy_because, "policy chosen");
    }
}

/// The policy that `auto` stands for, with the reason; `None` while the runtime does not answer, which changes nothing.
fn auto_policy(freeze_by: FreezeBy, link: &NriLink, events: &StreamState) -> Option<(PolicyName, String)> {
    let gate = |why: &str| Some((PolicyName::GateBank, format!("starts can be gated: {why}")));
    let bank = |why: String| Some((PolicyName::Bank, format!("starts cannot be gated: {why}")));
    match (link, freeze_by, events) {
        (NriLink::Yes, ..) => gate("the runtime asks before it creates a container (NRI)"),
        (_, FreezeBy::Runtime, _) => {
            bank("without NRI they are gated by the freezer file, and containers are frozen through the runtime here".to_owned())
        }
        (_, _, StreamState::Receiving) => gate("the runtime reports them, and there is a freezer"),
        (_, _, StreamState::Unsupported(why)) => bank(format!("the runtime does not report starting tasks: {why}")),
        (_, _, StreamState::Trying | StreamState::Interrupted(_)) => None,
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;
    use crate::config::{Cli, Command};

    fn run_with(arguments: &[&str]) -> Run {
        match Cli::parse_from(["drover-memory-guard", "run"].iter().chain(arguments)).command {
            Command::Run(run) => *run,
            other => unreachable!("{other:?}"),
        }
    }

    #[test]
    fn auto_policy_gates_starts_only_where_the_runtime_allows_it() {
        let chosen = |freeze_by, link: NriLink, events| auto_policy(freeze_by, &link, &events).map(|(policy, _)| policy);
        let no_nri = || NriLink::No("no socket".to_owned());
        assert_eq!(chosen(FreezeBy::Runtime, NriLink::Yes, StreamState::Trying), Some(PolicyName::GateBank));
        assert_eq!(chosen(FreezeBy::Cgroup, no_nri(), StreamState::Receiving), Some(PolicyName::GateBank));
        assert_eq!(chosen(FreezeBy::Runtime, no_nri(), StreamState::Receiving), Some(PolicyName::Bank));
        assert_eq!(chosen(FreezeBy::Cgroup, no_nri(), StreamState::Unsupported("no such call".to_owned())), Some(PolicyName::Bank));
        assert_eq!(chosen(FreezeBy::Cgroup, no_nri(), StreamState::Interrupted("no answer".to_owned())), None);
    }

    #[test]
    fn guard_of_auto_without_a_gate_has_the_settings_of_the_bank_alone() -> Result<()> {
        let chosen = named(PolicyName::Bank, &run_with(&[]));
        assert_eq!(chosen, guard(&run_with(&["--policy", "bank"]))?);
        assert_eq!(chosen.policy, Policy::Bank(BankSettings::default()));
        Ok(())
    }
}
