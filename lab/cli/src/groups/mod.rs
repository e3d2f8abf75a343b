//! `drover groups place`: what each policy of group placement would make of the members of a running Drover. It reads, and changes nothing.

mod question;

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Instant;

use anyhow::{Context, Result, bail};
use clap::Args;
use drover::clusters;
use drover::globals::{Format, Globals};
use drover::hub::segment;
use drover::output;
use drover::session::Session;
use drover_api::apps::AppList;
use drover_api::ledger::{DecisionRecord, Explanation};
use drover_lab_groups::ddpg::LearnedPolicy;
use drover_lab_groups::learned::Learned;
use drover_lab_groups::{LearnedModel, POLICIES, Placed, Search, Settings, Terms, Weights, policy_named};
use drover_scheduling::AppRequest;
use question::Question;
use serde::Serialize;
use uuid::Uuid;

/// `drover groups place`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  drover groups place shop\n  drover groups place shop --policy learned --learned model.json\n  \
                  drover groups place shop --policy cgs-search --polish 100000 -o json\n\n\
                  It uses the clusters of the logical cloud, with their present room without the apps' copies.\n\
                  Intents, provider priority and nodes are left out: `drover explain` says what Drover would decide.")]
pub struct PlaceArgs {
    /// Application whose call graph is placed. It must have been instantiated once.
    pub graph: String,
    /// Policy, several times for several [default: learned, cgs-greedy and cgs-search].
    #[arg(long, value_name = "NAME", value_parser = clap::builder::PossibleValuesParser::new(POLICIES))]
    pub policy: Vec<String>,
    /// File of a trained policy: for `learned` from `drover experiment groups --save-learned`, for `cgs-ddpg` from `--save-policy`.
    #[arg(long, value_name = "FILE")]
    pub learned: Option<PathBuf>,
    /// Moves of search after each policy; 0 for none.
    #[arg(long, value_name = "MOVES", default_value_t = 0)]
    pub polish: u64,
    /// File to which the call graph is written, with the requests of the apps, for `drover experiment groups --graph`.
    #[arg(long, value_name = "FILE")]
    pub save_graph: Option<PathBuf>,
    /// Seed of the policies that choose at random.
    #[arg(long, default_value_t = 0)]
    pub seed: u64,
}

/// The answer.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Answer {
    /// Where the apps run now.
    now: Option<Outcome>,
    policies: Vec<Outcome>,
}

/// A placement of all apps.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Outcome {
    policy: String,
    /// The policy whose placement was taken, if the guard of `learned` took another one.
    #[serde(skip_serializing_if = "Option::is_none")]
    taken: Option<String>,
    objective: f64,
    /// The objective before the placement was improved: by the refinement of `learned`, and by a search (`--polish`).
    #[serde(skip_serializing_if = "Option::is_none")]
    before_search: Option<f64>,
    sigma_cluster: f64,
    sigma_node: f64,
    sigma_container: f64,
    /// Apps without a member.
    unplaced: Vec<String>,
    milliseconds: f64,
    /// The member of each placed app.
    members: BTreeMap<String, String>,
}

/// Prints what each policy makes of the application, beside what runs now.
///
/// # Errors
/// The application is unknown or has no calls, a file is no policy, or a request fails.
pub async fn place(globals: Globals, args: PlaceArgs) -> Result<()> {
    let session = Session::open(globals)?;
    let (question, answer) = compare(&session, &args).await?;
    if !matches!(session.format, Format::Table | Format::Wide) {
        return output::print(session.format, &answer, |_| (vec![], vec![]));
    }
    output::write_stdout(&text(&question, &answer))
}

/// What each policy makes of the application, and what runs now.
///
/// # Errors
/// See [`place`].
pub async fn compare(session: &Session, args: &PlaceArgs) -> Result<(Question, Answer)> {
    let requests = requests(session, &args.graph).await?;
    let question = Question::of(&session.project, &args.graph, &requests, &clusters::all(session).await?)?;
    if let Some(path) = &args.save_graph {
        fs::write(path, question.graph.text()?).with_context(|| format!("cannot write {}", path.display()))?;
    }
    let named =
        if args.policy.is_empty() { ["learned", "cgs-greedy", "cgs-search"].map(str::to_owned).to_vec() } else { args.policy.clone() };
    let policies = named.iter().map(|name| run(name, args, &question)).collect::<Result<Vec<Outcome>>>()?;
    let now = question.now.as_ref().map(|at| {
        let terms = Terms::of(&question.instance, at);
        question.outcome("now", terms, at, 0.0)
    });
    Ok((question, Answer { now, policies }))
}

/// The requests of the apps of an application, each as it was last decided.
async fn requests(session: &Session, application: &str) -> Result<Vec<AppRequest>> {
    let list: AppList = session.client.get(&format!("/v2/apps?project={}", segment(&session.project))).await?;
    let apps: Vec<String> = list.items.into_iter().filter(|item| item.composite_app == application).map(|item| item.app).collect();
    if apps.is_empty() {
        bail!("no application is called {application} in project {}; see `drover get apps`", session.project);
    }
    let mut records: BTreeMap<Uuid, Vec<AppRequest>> = BTreeMap::new();
    let mut requests = Vec::new();
    for app in apps {
        let path = format!("/v2/explain?app={}%2F{}&project={}", segment(application), segment(&app), segment(&session.project));
        let told: Explanation = session.client.get(&path).await?;
        let Some(id) = told.decided.and_then(|decided| decided.id) else { continue };
        if let std::collections::btree_map::Entry::Vacant(free) = records.entry(id) {
            let record: DecisionRecord = session.client.get(&format!("/v2/decisions/{id}")).await?;
            free.insert(record.request.map(|request| request.apps).unwrap_or_default());
        }
        requests.extend(records[&id].iter().find(|request| request.app == app).cloned());
    }
    Ok(requests)
}

/// Places by one policy.
fn run(name: &str, args: &PlaceArgs, question: &Question) -> Result<Outcome> {
    let mut settings = Settings { seed: args.seed, experimental: true, ..Settings::default() };
    if let Some(path) = &args.learned {
        match name {
            "learned" => settings.model = Some(LearnedModel::load(&read(path)?).with_context(|| path.display().to_string())?),
            "cgs-ddpg" => settings.learned = Some(LearnedPolicy::load(&read(path)?).with_context(|| path.display().to_string())?),
            _ => {}
        }
    }
    let (instance, weights) = (&question.instance, Weights::default());
    let began = Instant::now();
    let (placed, taken, chosen) = if name == "learned" {
        let model = settings.model.clone().unwrap_or_else(|| LearnedModel::shipped().clone());
        let guarded = Learned::new(model).guard(instance, &weights);
        (guarded.placed, guarded.took_greedy.then(|| "cgs-greedy".to_owned()), (!guarded.took_greedy).then_some(guarded.refinement.before))
    } else {
        (policy_named(name, &settings)?.place(instance, &weights), None, None)
    };
    let polished: Option<Placed> = (args.polish > 0).then(|| Search::moves(args.polish, args.seed).polish(instance, &weights, &placed));
    let milliseconds = began.elapsed().as_secs_f64() * 1000.0;
    let before_search = chosen.or(polished.as_ref().map(|_| placed.value));
    let last = polished.unwrap_or(placed);
    Ok(Outcome { taken, before_search, ..question.outcome(name, last.terms, &last.at, milliseconds) })
}

fn read(path: &Path) -> Result<String> {
    fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))
}

impl Question {
    fn outcome(&self, policy: &str, terms: Terms, at: &[Option<usize>], milliseconds: f64) -> Outcome {
        let app = |container: usize| self.apps[self.instance.containers()[container].service].clone();
        let home = |(container, at): (usize, &Option<usize>)| Some((app(container), self.instance.places()[(*at)?].name.clone()));
        Outcome {
            policy: policy.to_owned(),
            taken: None,
            objective: terms.value(&Weights::default()),
            before_search: None,
            sigma_cluster: terms.cluster,
            sigma_node: terms.node,
            sigma_container: terms.container,
            unplaced: at.iter().enumerate().filter(|(_, at)| at.is_none()).map(|(container, _)| app(container)).collect(),
            milliseconds,
            members: at.iter().enumerate().filter_map(home).collect(),
        }
    }
}

/// The values of the policies, and where each puts each app.
fn text(question: &Question, answer: &Answer) -> String {
    let all: Vec<&Outcome> = answer.now.iter().chain(&answer.policies).collect();
    let row = |outcome: &&Outcome| {
        let taken = outcome.taken.as_ref().map_or_else(String::new, |taken| format!(" ({taken} is better)"));
        vec![
            format!("{}{taken}", outcome.policy),
            format!("{:.4}", outcome.objective),
            outcome.before_search.map_or_else(String::new, |before| format!("{before:.4}")),
            format!("{:.4}", outcome.sigma_cluster),
            format!("{:.4}", outcome.sigma_node),
            format!("{:.0} %", outcome.sigma_container * 100.0),
            outcome.unplaced.join(" "),
            if outcome.policy == "now" { String::new() } else { format!("{:.1}", outcome.milliseconds) },
        ]
    };
    let columns = ["POLICY", "OBJECTIVE", "BEFORE SEARCH", "SIGMA CLUSTER", "SIGMA NODE", "CALLS BETWEEN CLUSTERS", "NO ROOM", "MS"];
    let values = output::table(&columns, &all.iter().map(row).collect::<Vec<_>>());
    let heads: Vec<String> = std::iter::once("APP".to_owned()).chain(all.iter().map(|outcome| outcome.policy.to_uppercase())).collect();
    let homes = |app: &String| -> Vec<String> {
        let home = |outcome: &&Outcome| outcome.members.get(app).cloned().unwrap_or_else(|| "-".to_owned());
        std::iter::once(app.clone()).chain(all.iter().map(home)).collect()
    };
    let rows: Vec<Vec<String>> = question.apps.iter().map(homes).collect();
    format!("{values}\n\n{}", output::table(&heads.iter().map(String::as_str).collect::<Vec<_>>(), &rows))
}
