//! `drover explain`: why an app runs where it does and not elsewhere, and, if it has no room, what would have to move.

use anyhow::{Result, bail};
use clap::Args;
use drover_api::agents::AgentView;
use drover_api::apps::{AppList, AppRefusal, AppView, PolicyBounds};
use drover_api::bindings::ScaledWorkload;
use drover_api::ledger::{ExplainedCalls, ExplainedDecision, Explanation};
use drover_api::plans::{PlanDocument, PlanList};
use drover_api::scheduling::{AppDecision, CallStory, GroupPolicy, PolicyStep, PolicyStory, SearchMove, Verdict};
use drover_api::words;
use serde_json::json;

use crate::globals::Format;
use crate::output;
use crate::session::Session;
use crate::{agents, plans};

/// `drover explain`.
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  drover explain shop/cart")]
pub struct ExplainArgs {
    /// `APPLICATION/APP`, or the application alone if it has one app.
    pub app: String,
}

/// Prints why the app runs where it does; if it has no room, also the plan that would make some.
///
/// # Errors
/// There is no such app, or a request fails.
pub async fn run(session: &Session, app: &str) -> Result<()> {
    let app = match app.split_once('/') {
        Some(_) => app.to_owned(),
        None => only_app(session, app).await?,
    };
    let explanation: Explanation = session.client.read(session.client.api.explain(&app, Some(&session.project))).await?;
    if matches!(session.format, Format::Json | Format::Yaml) {
        return output::print(session.format, &explanation, |_| (vec![], vec![]));
    }
    let item = app_of(session, &explanation).await?;
    let running = match &item {
        Some(item) => running(session, item).await,
        None => String::new(),
    };
    let moved = moved(session, &explanation).await;
    output::write_stdout(&(text(&app, &explanation, item.as_ref()) + &moved + &running))?;
    if lacks_room(&explanation) {
        output::write_stdout("\nwhat would have to move:")?;
        return match wanted_plan(session, &explanation).await {
            Ok(plan) => plans::print(session, &plan, false),
            Err(error) => output::write_stdout(&format!("{error}")),
        };
    }
    Ok(())
}

/// The only app of an application, as `application/app`.
async fn only_app(session: &Session, application: &str) -> Result<String> {
    let list: AppList = session.client.read(session.client.api.apps_list(None, None, Some(&session.project))).await?;
    let mut apps: Vec<String> =
        list.items.into_iter().filter(|item| item.composite_app == application).map(|item| format!("{application}/{}", item.app)).collect();
    match apps.len() {
        1 => Ok(apps.remove(0)),
        0 => bail!("no application is called {application} in project {}; see `drover get apps`", session.project),
        _ => bail!("{application} has several apps; give one of them: {}", apps.join(", ")),
    }
}

/// The app in the list of apps.
async fn app_of(session: &Session, of: &Explanation) -> Result<Option<AppView>> {
    let list: AppList = session.client.read(session.client.api.apps_list(None, None, Some(&of.project))).await?;
    let same = |item: &&AppView| {
        (&item.composite_app, &item.version, &item.dig, &item.app) == (&of.dig.composite_app, &of.dig.version, &of.dig.name, &of.app)
    };
    Ok(list.items.into_iter().find(|item| same(&item)))
}

/// What is known of the app as it runs: who chooses its replicas, and where no plan moves it.
async fn running(session: &Session, item: &AppView) -> String {
    let agents = agents::all(&session.client).await.unwrap_or_default();
    scaled(item) + &bounds(item) + &reported(item, &agents) + &suffering(item) + &refusals(item)
}

/// Why it, or another app of its project that suffers on the same cluster, is to be moved without a newcomer.
fn suffering(item: &AppView) -> String {
    item.suffering.iter().map(|one| words::suffering(one) + "\n").collect()
}

/// Which plan moved it to where it is, and why; empty if it was not moved, or the plan is not known any more.
async fn moved(session: &Session, explanation: &Explanation) -> String {
    if !explanation.moved {
        return String::new();
    }
    let Ok(plans) = session.client.read::<_, PlanList>(session.client.api.plan_list(None, None)).await else { return String::new() };
    let here = explanation.room.iter().map(|claim| claim.member.0.as_str());
    let said = here.filter_map(|member| words::moved_by(&plans.items, explanation.dig.id, &explanation.app, member));
    said.map(|line| line + "\n").collect()
}

/// A node whose memory would be exhausted within this many seconds is mentioned.
const SOON: u64 = 300;

/// What the agents of its clusters say that concerns the app: pods that its load needs beyond the bounds, and memory that runs out.
fn reported(item: &AppView, agents: &[AgentView]) -> String {
    let mut text = String::new();
    for binding in &item.bindings {
        let reports = agents
            .iter()
            .flat_map(|agent| &agent.copies)
            .filter(|copy| copy.member == binding.member)
            .filter_map(|copy| copy.report.as_ref());
        for report in reports {
            let concerns = |policy: &str| {
                let name = policy.rsplit('/').next().unwrap_or_default();
                name == item.app || binding.scaled.iter().any(|workload| workload.name == name)
            };
            for unmet in report.unmet.iter().filter(|unmet| concerns(&unmet.policy)) {
                let (pods, policy, member) = (unmet.pods, &unmet.policy, &binding.member);
                text.push_str(&format!("its load on {member} needs {pods} more pods than the upper bound of the policy {policy} allows\n"));
            }
            if let Some(seconds) = report.seconds_to_exhaustion.filter(|seconds| *seconds <= SOON) {
                text.push_str(&format!("memory of a node of {} would be exhausted in {seconds} s at its present growth\n", binding.member));
            }
        }
    }
    text
}

/// The workloads of which another field manager has chosen the number of replicas.
fn scaled(item: &AppView) -> String {
    let workloads = item.bindings.iter().flat_map(|binding| binding.scaled.iter().map(move |workload| (&binding.member, workload)));
    let line = |(member, ScaledWorkload { kind, name, replicas, by }): (&_, &ScaledWorkload)| {
        format!("{kind} {name} on {member} has {replicas} replicas, chosen by {by}; Drover does not change the number\n")
    };
    let mut text: String = workloads.map(line).collect();
    for (member, why) in item.bindings.iter().filter_map(|binding| Some((&binding.member, binding.unclaimed.as_ref()?))) {
        text.push_str(&format!("on {member} {why}\n"));
    }
    if !text.is_empty() {
        text.push_str("(the annotation drover.io/replicas-owner: drover of the workload makes Drover set the number of the manifest)\n");
    }
    text
}

/// The shares of bounds that count for all clusters together.
fn bounds(item: &AppView) -> String {
    let shares = item.bindings.iter().flat_map(|binding| binding.bounds.iter().map(move |share| (&binding.member, share)));
    let line = |(member, share): (&_, &PolicyBounds)| {
        let policy = format!("{} {}", share.kind, share.policy);
        match share.min.zip(share.max) {
            Some((min, max)) => {
                let late = if share.confirmed { "" } else { "; the cluster has not confirmed this yet" };
                format!("{policy} on {member} may have {min} to {max} pods, its share of the bounds over all clusters{late}\n")
            }
            None => {
                format!("{policy} on {member} adds no pods until other clusters have given up room within the bounds over all clusters\n")
            }
        }
    };
    shares.map(line).collect()
}

/// The clusters that plans leave out, because a new copy of the app did not become ready there.
fn refusals(item: &AppView) -> String {
    let line = |refusal: &AppRefusal| format!("no plan moves it to {} for ten minutes: {}\n", refusal.member, refusal.reason);
    item.refused.iter().map(line).collect()
}

/// The plan that would make room for the app, as a dry run: the plan is not stored.
async fn wanted_plan(session: &Session, of: &Explanation) -> Result<PlanDocument> {
    let wish = json!({
        "kind": "newcomer", "project": of.dig.project, "compositeApp": of.dig.composite_app,
        "compositeAppVersion": of.dig.version, "deploymentIntentGroup": of.dig.name,
    });
    plans::made(session, &wish, None, true).await
}

fn chosen(decided: &ExplainedDecision) -> bool {
    decided.decision.groups.iter().any(|group| group.placement.is_some())
}

/// Whether no cluster that is allowed has room for it, in contrast to none being allowed.
fn no_room(decided: &ExplainedDecision) -> bool {
    let mut verdicts = decided.decision.groups.iter().flat_map(|group| &group.considered).map(|considered| considered.verdict).peekable();
    !chosen(decided) && (verdicts.peek().is_none() || verdicts.any(|verdict| verdict != Verdict::NotAllowed))
}

/// Whether the app runs nowhere because there is no room for it.
fn lacks_room(explanation: &Explanation) -> bool {
    explanation.room.is_empty() && explanation.now.as_ref().is_none_or(no_room)
}

fn text(app: &str, explanation: &Explanation, item: Option<&AppView>) -> String {
    let members: Vec<&str> = explanation.room.iter().map(|claim| claim.member.0.as_str()).collect();
    let how = match &explanation.decided {
        None => ", where a plan made room for it",
        Some(decided) if !chosen(decided) => ", where a plan made room for it after this decision",
        Some(_) if explanation.moved => ", where it was moved after this decision",
        Some(_) => "",
    };
    let mut text = match members.is_empty() {
        true if lacks_room(explanation) => format!("{app} has no room anywhere\n"),
        true => {
            let state = item.map_or_else(String::new, |item| format!("; it is {}", item.state));
            let reason = item.and_then(|item| item.reason.as_ref()).map_or_else(String::new, |reason| format!(": {reason}"));
            format!("{app} runs nowhere{state}{reason}\n")
        }
        false => {
            let reason = item.and_then(|item| item.reason.as_ref());
            let failed = reason.map_or_else(String::new, |reason| format!("its last change failed: {reason}\n"));
            format!("{app} is on {}{how}\n{failed}", members.join(", "))
        }
    };
    let mut section = |title: String, decision: &AppDecision| {
        let table = output::table(
            &["CLUSTER", "PRIORITY", "VERDICT", "WHY"],
            &plans::considered([decision]).into_iter().map(without_app).collect::<Vec<_>>(),
        );
        text.push_str(&format!("\n{title}\n{table}\n"));
    };
    if let Some(decided) = &explanation.decided {
        section(format!("decided {}:", decided.at), &decided.decision);
    }
    if let Some(now) = &explanation.now {
        section("if it were decided now, as if it had no room yet:".to_owned(), &now.decision);
    }
    if let Some(calls) = &explanation.calls {
        text.push_str(&format!(
            "\ngroups of apps that call each other, as they run now and if they were placed again:\n{}\n",
            groups(calls)
        ));
        text.push_str(&calls.decided.as_ref().and_then(|story| story.chosen_by.as_ref()).map(chosen_by).unwrap_or_default());
    }
    text
}

fn without_app(mut row: Vec<String>) -> Vec<String> {
    row.remove(0);
    row
}

/// The groups of apps that call each other: as they run now, then as each group size (rho) and each policy would place them.
fn groups(calls: &ExplainedCalls) -> String {
    let row = |when: &str, story: &CallStory| {
        let group = |group: &drover_api::scheduling::CallGroup| {
            let members: Vec<&str> = group.members.iter().map(|member| member.0.as_str()).collect();
            if members.is_empty() { group.apps.join(" ") } else { format!("{} → {}", group.apps.join(" "), members.join(", ")) }
        };
        vec![
            when.to_owned(),
            story.rho.to_string(),
            percent(story.between_groups),
            story.crossing.map_or_else(|| "no room".to_owned(), percent),
            story.waiting_us.map_or_else(String::new, |us| format!("{:.2} ms", us / 1000.0)),
            story.chosen_by.as_ref().map_or_else(String::new, policies),
            story.chosen_by.as_ref().map_or_else(String::new, |by| format!("{:.4}", by.objective)),
            story.groups.iter().map(group).collect::<Vec<_>>().join("; "),
        ]
    };
    let by_rho = calls.by_rho.iter().map(|story| row("anew", story));
    // The policy in use is in the rows above.
    let others = calls.by_policy.iter().map(|story| row("anew", story));
    let mut rows: Vec<Vec<String>> = calls.running.iter().map(|story| row("now", story)).chain(by_rho).collect();
    let more: Vec<Vec<String>> = others.filter(|row| !rows.contains(row)).collect();
    rows.extend(more);
    let columns = ["GROUPS", "RHO", "CALLS BETWEEN GROUPS", "BETWEEN CLUSTERS", "WAITING", "POLICY", "OBJECTIVE", "WHO IS TOGETHER"];
    output::table(&columns, &rows)
}

/// The policy of a placement, and the one that was taken instead.
fn policies(by: &PolicyStory) -> String {
    if by.policy == by.taken { by.policy.name().to_owned() } else { format!("{} ({} is better)", by.policy.name(), by.taken.name()) }
}

/// What the policy saw when it decided, and what the local search changed.
fn chosen_by(by: &PolicyStory) -> String {
    let mut text = format!("\npolicy {}: objective {:.4}", by.policy.name(), by.objective);
    if let (GroupPolicy::Learned, Some(greedy)) = (by.policy, by.greedy) {
        text.push_str(&match by.learned {
            Some(learned) if by.taken == GroupPolicy::Learned => format!(", cgs-greedy has {greedy:.4} (learned {learned:.4} is taken)"),
            Some(learned) => format!(", the placement of cgs-greedy is taken because it is better (learned {learned:.4})"),
            None => ", the placement of cgs-greedy is taken because learned found no room".to_owned(),
        });
    }
    let rows: Vec<Vec<String>> = by.steps.iter().map(step).collect();
    let columns = ["APPS", "CLUSTER", "OPTIONS", "SCORE", "NEXT BEST", "CALLS THAT STAY", "USED BEFORE", "AFTER"];
    text.push_str(&format!("\nwhat {} saw, step by step:\n{}\n", by.taken.name(), output::table(&columns, &rows)));
    if by.search.is_empty() {
        text.push_str("the search after it moved nothing\n");
    } else {
        let moved = |step: &SearchMove| format!("{} from {} to {}", step.apps.join(" "), step.from, step.to);
        let moves: Vec<String> = by.search.iter().map(moved).collect();
        text.push_str(&format!("the search after it moved {} (objective before: {:.4})\n", moves.join(", then "), by.before_search));
    }
    text
}

fn step(step: &PolicyStep) -> Vec<String> {
    vec![
        step.apps.join(" "),
        step.member.as_ref().map_or_else(|| "placed in parts".to_owned(), ToString::to_string),
        step.options.to_string(),
        format!("{:.3}", step.score),
        step.next.as_ref().map_or_else(String::new, |next| format!("{} {:.3}", next.member, next.score)),
        step.kept.map_or_else(String::new, percent),
        step.load.map_or_else(String::new, |load| percent(load.before)),
        step.load.map_or_else(String::new, |load| percent(load.after)),
    ]
}

fn percent(share: f64) -> String {
    format!("{:.0} %", share * 100.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn app_that_was_refused_although_it_has_room_is_not_said_to_have_none() {
        let decided = |placement: serde_json::Value| {
            let group = json!({"considered": [], "placement": placement});
            json!({"at": "2026-01-01T00:00:00Z", "seq": 1, "outcome": "placed", "decision": {"app": "web", "groups": [group]}})
        };
        let explanation = |placement: serde_json::Value| -> Explanation {
            let dig = json!({"id": uuid::Uuid::nil(), "project": "p", "compositeApp": "shop", "version": "v1", "name": "shop"});
            let value = json!({"project": "p", "dig": dig, "app": "web", "room": [], "moved": false, "now": decided(placement)});
            serde_json::from_value(value).unwrap()
        };
        let item: AppView = serde_json::from_value(json!({"project": "p", "compositeApp": "shop", "version": "v1", "dig": "shop",
            "app": "web", "state": "Failed", "reason": "web on onprem+a: Service/n/web is not this app's", "bindings": []}))
        .unwrap();
        let fits = explanation(json!({"binding": uuid::Uuid::nil(), "member": "onprem+a", "pods": []}));
        let said = text("shop/web", &fits, Some(&item));
        assert!(said.starts_with("shop/web runs nowhere; it is Failed: web on onprem+a: Service/n/web is not this app's\n"), "{said}");
        assert!(!lacks_room(&fits));
        let full = explanation(serde_json::Value::Null);
        assert!(lacks_room(&full) && text("shop/web", &full, Some(&item)).starts_with("shop/web has no room anywhere\n"));
    }

    #[test]
    fn app_that_every_cluster_refused_is_not_said_to_lack_room() {
        let explanation = |verdict: &str| -> Explanation {
            let dig = json!({"id": uuid::Uuid::nil(), "project": "p", "compositeApp": "shop", "version": "v1", "name": "shop"});
            let reason = "it refused the objects at 2026-01-01T00:00:00Z: the member serves no kind Thing in a.io/v1";
            let considered = json!([{"member": "onprem+a", "priority": 1, "verdict": verdict, "reason": reason}]);
            let decision = json!({"app": "web", "groups": [{"considered": considered}]});
            let now = json!({"at": "2026-01-01T00:00:00Z", "seq": 1, "outcome": "no_room", "decision": decision});
            let value = json!({"project": "p", "dig": dig, "app": "web", "room": [], "moved": false, "now": now});
            serde_json::from_value(value).unwrap()
        };
        let refused = explanation("not_allowed");
        let said = text("shop/web", &refused, None);
        assert!(!lacks_room(&refused) && said.starts_with("shop/web runs nowhere\n"), "{said}");
        assert!(said.contains("not allowed   it refused the objects at 2026-01-01T00:00:00Z"), "{said}");
        assert!(lacks_room(&explanation("no_room")));
    }
}
