//! Kills every service, and Postgres, at every point of every workflow. The services run as processes, with members on the network. Afterwards
//! the operation must be finished or undone, nothing may exist twice or be left over, and the apps must have been ready all the time.
//!
//! The tests run the binaries of the services, which must be built before (`cargo build --workspace --bins`; `make test` does that).
#![allow(clippy::unwrap_used, reason = "a kill is a test, though not a function with the attribute")]

mod kills {
    pub mod case;
    pub mod check;
    pub mod fenced;
    pub mod matrix;
    pub mod moves;
    pub mod run;
    pub mod slot;
    pub mod stage;
    pub mod users;
}

use std::time::Instant;

use drover_api::operations::Operation;
use drover_e2e::emco::ended;
use drover_e2e::{Backend, succeeded};
use kills::case::{Case, Fault, Job};
use kills::run::{Journey, Outcome, wave, waves};
use kills::stage::Stage;
use kills::{case, fenced, matrix, users};

/// How many operations are paused at the same time on a stage.
const SLOTS: usize = 6;

/// Runs all journeys in waves. With `DROVER_KILLS=relocate/claim`, only those with a point whose name contains that.
async fn run(stage: Stage, journeys: Vec<Journey>) -> Vec<Outcome> {
    let waves = waves(chosen(journeys), stage.slots.len());
    run_waves(stage, waves).await
}

/// The same on two stages of [`SLOTS`] simulated slots, which take the waves in turn: a wave mostly waits for the process that was killed.
async fn run_on_two_stages(journeys: Vec<Journey>) -> Vec<Outcome> {
    let (mut first, mut second) = (Vec::new(), Vec::new());
    for (at, wave) in waves(chosen(journeys), SLOTS).into_iter().enumerate() {
        if at % 2 == 0 { first.push(wave) } else { second.push(wave) }
    }
    let run = async |waves| run_waves(Stage::simulated(SLOTS).await, waves).await;
    let (first, second) = tokio::join!(run(first), run(second));
    [first, second].concat()
}

fn chosen(mut journeys: Vec<Journey>) -> Vec<Journey> {
    let wanted = std::env::var("DROVER_KILLS").unwrap_or_default();
    journeys.retain(|journey| journey.stops.iter().any(|case| case.point.contains(&wanted)));
    journeys
}

async fn run_waves(mut stage: Stage, waves: Vec<Vec<Journey>>) -> Vec<Outcome> {
    let mut outcomes = Vec::new();
    for journeys in waves {
        let (began, operations, fault) = (Instant::now(), journeys.len(), journeys[0].stops[0].fault);
        let of_wave = wave(&mut stage, journeys).await;
        for (case, wrong) in of_wave.iter().filter_map(|(case, result)| Some((case, result.as_ref().err()?))) {
            eprintln!("{}, fault: {fault}: {wrong}", case.point);
        }
        eprintln!("{} faults in {operations} operations, fault: {fault}: {:.1} s", of_wave.len(), began.elapsed().as_secs_f64());
        outcomes.extend(of_wave);
    }
    stage.end().await;
    outcomes
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn operations_survive_a_kill_of_the_service_that_owns_the_step() {
    let began = Instant::now();
    let outcomes = run_on_two_stages(Journey::through_steps(case::short())).await;
    matrix::accept(&outcomes, "short");
    matrix::conclude(&outcomes, began.elapsed());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
#[ignore = "long: growth begins only when the next pass of a task finds it"]
async fn growth_survives_a_kill_of_the_service_that_owns_the_step() {
    let began = Instant::now();
    let outcomes = run(Stage::simulated(SLOTS).await, Journey::through_steps(case::growth())).await;
    matrix::accept(&outcomes, "growth");
    matrix::conclude(&outcomes, began.elapsed());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
#[ignore = "long: every service and Postgres at every point"]
async fn operations_survive_a_kill_of_any_process_at_any_point() {
    let began = Instant::now();
    let outcomes = run(Stage::simulated(SLOTS).await, Journey::through_steps(case::all())).await;
    matrix::accept(&outcomes, "long");
    matrix::conclude(&outcomes, began.elapsed());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
#[ignore = "long: each point once on real control planes, with alternating faults"]
async fn operations_survive_a_fault_at_each_point_on_real_members() {
    if !Backend::real_is_built() {
        return;
    }
    let began = Instant::now();
    let faults = Fault::all();
    let points = case::points().into_iter().zip(faults.iter().cycle());
    let cases = points.map(|((case, _), fault)| Case { fault: *fault, ..case }).collect();
    let outcomes = run(Stage::real().await, Journey::single(cases)).await;
    matrix::conclude(&outcomes, began.elapsed());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
#[ignore = "long: half an hour on real kubelets"]
async fn users_notice_no_kill_of_any_service_at_any_point_of_moves_between_real_kubelets() {
    if Backend::kubelets_run_here() {
        users::on_kubelets(tempfile::tempdir().unwrap().path()).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
#[ignore = "long: a move per step of a relocation"]
async fn weights_of_a_gateway_follow_moves_in_which_orchestrator_is_killed_at_each_point() {
    users::behind_a_gateway().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
#[ignore = "long: a move per step of a relocation"]
async fn moves_through_a_link_survive_a_kill_of_cluster_manager_at_each_point() {
    users::through_a_link().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
#[ignore = "long: it waits until a lease runs out"]
async fn process_stopped_past_its_lease_is_fenced_off() {
    fenced::scenario().await;
}

/// The gateway has no state, so operations do not need it.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn operations_go_on_without_the_gateway() {
    let mut stage = Stage::simulated(1).await;
    let (group, verb) = stage.slots[0].target(Job::MakeRoom);
    let id = group.verb(&stage.client, verb).await.unwrap();
    stage.processes.kill("gateway");
    assert!(stage.client.get::<Operation>(&format!("/v2/operations/{id}")).await.is_err(), "the gateway answers although it was killed");
    succeeded(&ended(&stage.processes.client("orchestrator"), &id).await.unwrap());
    stage.processes.run("gateway");
    stage.processes.until_ready("gateway").await;
    succeeded(&ended(&stage.client, &id).await.unwrap());
    stage.end().await;
}

#[test]
fn kill_matrix_in_the_docs_has_all_rows() {
    matrix::documented();
}
