//! The search for victims at its hardest: fourteen candidates of random sizes of which a random set fills the room elsewhere exactly.
//! A plan exists for each instance; how many does the search find within its time, and with how many moves beyond the fewest?

use std::time::{Duration, Instant};

use anyhow::Result;
use drover_api::scheduling::{Fleet, Ledger, MemberKey, PlanRequest, PlanResult, Policy};
use drover_migration::TimeMeter;
use drover_report::{Check, Report, Table};
use drover_scheduling::plan_within;

use super::plan::{self, Running};
use super::{Size, cell, spread};

const CANDIDATES: usize = 14;
/// Time limit of migration unless `--plan-seconds` says otherwise.
const LIMIT: Duration = Duration::from_millis(50);
/// Time in which all sets of fourteen candidates can be tried, for the fewest moves.
const ENOUGH: Duration = Duration::from_secs(20);

/// Searches all instances in three ways: in order and for the fewest moves within migration's limit, and with enough time to try all sets.
///
/// # Errors
/// Never; all benchmarks have the same signature.
pub fn run(size: Size, report: &mut Report) -> Result<()> {
    let instances = size.of(300, 3);
    let mut table =
        Table::new("search", ["candidates", "instances", "way", "found", "moves", "moves beyond the fewest", "p50 [ms]", "p99 [ms]"]);
    let all: Vec<(Ledger, PlanRequest)> = (0..instances).map(instance).collect();
    let [ordered, fewest, best] =
        [(false, LIMIT), (true, LIMIT), (true, ENOUGH)].map(|(fewest_moves, limit)| search(&all, fewest_moves, limit));
    for (way, searched) in [("in order, 50 ms", &ordered), ("fewest moves, 50 ms", &fewest), ("fewest moves, 20 s", &best)] {
        let beyond = 100.0 * (searched.moves_beyond(&best) - 1.0);
        let [p50, _, p99, _] = spread(&searched.took);
        let mut row = vec![CANDIDATES.to_string(), instances.to_string(), way.to_owned(), searched.found().to_string()];
        row.extend([searched.moves.iter().flatten().sum::<usize>().to_string(), format!("{} %", cell(beyond)), cell(p50), cell(p99)]);
        table.row(row);
    }
    report.checks.push(Check::at_least("feasible instances of 14 candidates found in 50 ms", instances as f64, ordered.found() as f64, ""));
    report.tables.push(table);
    Ok(())
}

/// What one way of searching has found.
#[derive(Default)]
struct Searched {
    /// For each instance, the moves of its plan, if one was found.
    moves: Vec<Option<usize>>,
    took: Vec<Duration>,
}

impl Searched {
    fn found(&self) -> usize {
        self.moves.iter().flatten().count()
    }

    /// The moves of this way divided by those of another one, over the instances that both have solved.
    fn moves_beyond(&self, other: &Self) -> f64 {
        let both = self.moves.iter().zip(&other.moves).filter_map(|(mine, others)| Some((mine.as_ref()?, others.as_ref()?)));
        let (mine, others) = both.fold((0, 0), |(mine, others), (one, other)| (mine + one, others + other));
        if others == 0 { 1.0 } else { mine as f64 / others as f64 }
    }
}

fn search(instances: &[(Ledger, PlanRequest)], fewest_moves: bool, limit: Duration) -> Searched {
    let mut searched = Searched::default();
    for (ledger, request) in instances {
        let request = PlanRequest { fewest_moves, ..request.clone() };
        let began = Instant::now();
        let result = plan_within(ledger, &request, &mut TimeMeter::new(limit));
        searched.took.push(began.elapsed());
        searched.moves.push(match result {
            PlanResult::Feasible(plan) => Some(plan.waves.iter().map(Vec::len).sum()),
            _ => None,
        });
    }
    searched
}

/// The first member is full of candidates, and the newcomer needs as much of it as the other three have room.
fn instance(seed: usize) -> (Ledger, PlanRequest) {
    let mut random = fastrand::Rng::with_seed(seed as u64);
    let sizes: Vec<i64> = (0..CANDIDATES).map(|_| random.i64(50..400)).collect();
    let mut rooms = [sizes.iter().sum(), 0, 0, 0];
    for size in &sizes {
        // Somewhat less than half of the candidates fill the room elsewhere.
        if random.u8(0..100) < 45 {
            rooms[random.usize(1..4)] += size;
        }
    }
    let keys: Vec<MemberKey> = plan::keys(rooms.len());
    let mut fleet = Fleet::default();
    for (at, (key, room)) in keys.iter().zip(rooms).enumerate() {
        plan::add_member(&mut fleet, key, if at == 0 { 1 } else { 2 }, &[room]);
    }
    for (at, cpu) in sizes.iter().enumerate() {
        plan::add_claim(&mut fleet, &keys, Running { at, node: 0, cpu: *cpu, memory: 0 });
    }
    let newcomer = plan::newcomer(&keys, 1, rooms[1..].iter().sum(), 0);
    (Ledger::from(&fleet), plan::request(newcomer, CANDIDATES, Policy::default()))
}
