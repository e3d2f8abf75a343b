//! The experiments in memory are about the product: a draw deployed through the hub ends as in memory.

use drover_api::operations::OperationState;
use drover_api::scheduling::{Policy, WhenFull};
use drover_e2e::apps::App;
use drover_e2e::emco::{ANYWHERE, Group};
use drover_e2e::members::Shape;
use drover_e2e::{System, moves};
use drover_lab_relocation::{Application, Draw, NodeSize, Preference, Replay, Strategy, replay};

/// CPUs of the one node of each member, which has 2 GiB for each of them: about the demand of 85 % of the experiments.
const CPU: u32 = 7;
const SIZE: NodeSize = NodeSize { cpu: 7_000, memory: 14 * 1024 };

/// What the experiments say of a draw.
fn in_memory(draw: &Draw) -> Replay {
    let drover = Strategy::Drover { policy: Policy::default(), when_full: WhenFull::Overflow, steps: 1_000_000 };
    replay(draw, SIZE, Preference::PRIVATE_FIRST, &drover)
}

/// The name of a microservice's Deployment, which is unique among all applications.
fn name(arrival: usize, at: usize) -> String {
    format!("app-{arrival:02}-m{at}")
}

fn group(arrival: usize, application: &Application) -> Group {
    let app = |(at, one): (usize, &drover_lab_relocation::Microservice)| {
        let (cpu, memory) = (u32::try_from(one.cpu).unwrap(), u32::try_from(one.memory).unwrap());
        App::new(&name(arrival, at), cpu).memory(memory).on(one.allowed.clusters().map(|cluster| ANYWHERE[cluster]))
    };
    Group::of(&format!("app-{arrival:02}"), application.microservices.iter().enumerate().map(app).collect()).movable(10)
}

/// Whether a draw ends the same however long pods take until they are ready. The planner breaks ties between plans by it, so that other
/// draws may end in another way each time.
fn is_independent_of_start_times(draw: &Draw, expected: &Replay) -> bool {
    (0..20).all(|variant: u32| {
        let mut other = draw.clone();
        let mut state = variant.wrapping_mul(0x9e37_79b9);
        for one in other.applications.iter_mut().flat_map(|application| &mut application.microservices) {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            one.ready_ms = Some(500 + (state >> 16) % 1000);
        }
        in_memory(&other) == *expected
    })
}

/// Draws with several moves and a rejection. Each arrival and every place is compared with the run in memory.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
#[ignore = "long: three times fifteen applications one after the other"]
async fn hub_places_draws_as_the_experiments_do() {
    let runs = (1..).map(Draw::new).map(|draw| (in_memory(&draw), draw));
    let eventful = runs.filter(|(run, draw)| run.moves() >= 4 && run.rejected() >= 1 && is_independent_of_start_times(draw, run));
    for (expected, draw) in eventful.take(3) {
        println!("seed {}: {} moves, {} rejected", draw.seed, expected.moves(), expected.rejected());
        compare(&draw, &expected).await;
    }
}

async fn compare(draw: &Draw, expected: &Replay) {
    let system = System::shaped(&Shape { nodes: 1, cpu: CPU, ..Shape::default() }, &[]).await;
    let mut moved = 0;
    for (arrival, application) in draw.applications.iter().enumerate() {
        let operation = group(arrival, application).deploy(&system.client).await.unwrap();
        let runs = operation.state == OperationState::Succeeded;
        assert_eq!(runs, expected.arrivals[arrival].runs, "seed {}, arrival {arrival}: {operation:#?}", draw.seed);
        if !runs {
            assert_eq!(operation.code.as_deref(), Some("plan_infeasible"));
        }
        moved += moves(&system.client, &operation).await.len();
    }
    for (arrival, places) in expected.places.iter().enumerate() {
        for (at, cluster) in places.iter().enumerate() {
            let wanted = cluster.map_or("", |cluster| ANYWHERE[cluster].split_once('/').unwrap().1);
            assert_eq!(system.serves(&name(arrival, at)).await, wanted, "seed {}, {}", draw.seed, name(arrival, at));
        }
    }
    assert_eq!(moved, expected.moves(), "seed {}", draw.seed);
    system.end().await;
}
