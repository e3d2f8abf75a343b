//! How many applications are rejected, by strategy, and how many must be.

use drover_scheduling::{Policy, WhenFull};

use super::{PACKING_STEPS, Plan, Runner, drover};
use crate::draw::{Draw, NodeSize};
use crate::hub::Preference;
use crate::optimum::{Optimum, Rearranged, optimum, rearranged, together};
use crate::packing::Packed;
use crate::policy::{paper_policy, scoring_policy};
use crate::replay::{Replay, Strategy};
use crate::rivals::Limits;

/// All draws under one strategy.
#[derive(Clone, Debug, PartialEq)]
pub struct RejectionArm {
    pub name: &'static str,
    /// What it does, for the reader of a table.
    pub what: &'static str,
    /// One replay for each draw, in the order of the seeds.
    pub runs: Vec<Replay>,
}

/// All strategies on the same draws, with one size of the clusters.
#[derive(Clone, Debug, PartialEq)]
pub struct RejectionCase {
    /// Mean demand in percent of what the clusters have.
    pub percent: u32,
    /// Seeds of the draws.
    pub seeds: Vec<u64>,
    pub arms: Vec<RejectionArm>,
    /// By draw: what runs if everything may be rearranged at each arrival.
    pub rearranged: Vec<Rearranged>,
    /// By draw: the most applications that can run.
    pub optimum: Vec<Optimum>,
    /// By draw: the rejections of the arm `drover`.
    pub avoidable: Vec<Avoidable>,
}

/// The rejections of one draw, by whether rearranging what ran at that time could have made room.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Avoidable {
    /// It could have.
    pub yes: usize,
    /// Proven: it could not.
    pub no: usize,
    /// The proof was cut short.
    pub unknown: usize,
}

impl RejectionCase {
    /// The draws under a strategy.
    pub fn arm(&self, name: &str) -> &[Replay] {
        self.arms.iter().find(|arm| arm.name == name).map_or(&[], |arm| &arm.runs)
    }
}

/// All strategies prefer the private clusters.
fn strategies() -> [(&'static str, &'static str, Strategy); 8] {
    let overflow = WhenFull::Overflow;
    [
        ("reject", "(a) no migration", Strategy::Reject),
        ("code", "(b) the published code, limits equal to requests", Strategy::Published(paper_policy(), Limits(100))),
        ("code, limits 200 %", "(b) the published code, limits of twice the requests", Strategy::Published(paper_policy(), Limits(200))),
        ("text", "(c) the paper's text, order CPUUtilization, Dispersion", Strategy::PaperText(paper_policy())),
        ("drover", "(d) no policy", drover(Policy::default(), overflow)),
        ("drover, order", "(d) order CPUUtilization, Dispersion", drover(paper_policy(), overflow)),
        ("drover, scoring", "(d) scoring CPUUtilization + Dispersion", drover(scoring_policy(), overflow)),
        ("drover, preferred", "(d) no policy, whenFull: preferred", drover(Policy::default(), WhenFull::Preferred)),
    ]
}

/// Runs all strategies on all draws, and proves the optimum of each. `done` is called after each draw.
///
/// # Errors
/// Those of `run`.
pub fn rejection<E>(plan: &Plan, run: &mut Runner<'_, E>, done: &dyn Fn()) -> Result<Vec<RejectionCase>, E> {
    let strategies = strategies();
    let case = |percent: &u32| {
        let size = NodeSize::for_demand(*percent);
        let arms = strategies.iter().map(|(name, what, _)| RejectionArm { name, what, runs: Vec::new() }).collect();
        let seeds: Vec<u64> = (plan.seed..plan.seed + plan.draws).collect();
        let (rearranged, optimum, avoidable) = Default::default();
        let mut case = RejectionCase { percent: *percent, seeds: seeds.clone(), arms, rearranged, optimum, avoidable };
        for seed in seeds {
            add(&mut case, &Draw::new(seed), size, &strategies, run)?;
            done();
        }
        Ok(case)
    };
    plan.demands.iter().map(case).collect()
}

fn add<E>(
    case: &mut RejectionCase,
    draw: &Draw,
    size: NodeSize,
    strategies: &[(&str, &str, Strategy)],
    run: &mut Runner<'_, E>,
) -> Result<(), E> {
    for (arm, (name, _, strategy)) in case.arms.iter_mut().zip(strategies) {
        let run = run(draw, size, Preference::PRIVATE_FIRST, strategy)?;
        if *name == "drover" {
            case.avoidable.push(avoidable(draw, size, &run));
        }
        arm.runs.push(run);
    }
    case.rearranged.push(rearranged(draw, size, PACKING_STEPS));
    case.optimum.push(optimum(draw, size, PACKING_STEPS));
    Ok(())
}

fn avoidable(draw: &Draw, size: NodeSize, run: &Replay) -> Avoidable {
    let mut result = Avoidable::default();
    let mut running = Vec::new();
    for (arrival, fate) in run.arrivals.iter().enumerate() {
        running.push(arrival);
        if fate.runs {
            continue;
        }
        match together(draw, size, &running, PACKING_STEPS) {
            Packed::Fits(_) => result.yes += 1,
            Packed::Never => result.no += 1,
            Packed::Unknown => result.unknown += 1,
        }
        running.pop();
    }
    result
}
