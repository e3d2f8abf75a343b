//! One step of the learner: it learns from the period that ended, then chooses the next action.

use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;

use super::{ACTIONS, BUCKETS, QLearningObservation, QLearningSpec, QLearningState, QLearningSteps, QTable, TakenAction, bucket};

/// Index of "no change" in [`ACTIONS`].
const STAY: usize = 1;
/// Projected CPU above which the guard refuses to remove a pod.
const HOT: f64 = 0.85;

/// How the action is chosen.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Choice {
    /// The best action, except that this share of decisions takes one of its neighbours or itself at random (online use).
    Neighbour(f64),
    /// The best action, except that this share of decisions takes any legal action at random (training).
    Anything(f64),
}

/// Proposes a number of pods and gives the steps to it. None: CPU was not read; nothing is learned from this period or the next.
pub(crate) fn propose(spec: &QLearningSpec, state: &mut QLearningState, seen: &QLearningObservation) -> Option<(i32, QLearningSteps)> {
    let passed = i32::try_from(state.decisions).unwrap_or(i32::MAX);
    step(spec, state, seen, Choice::Neighbour(spec.noise * spec.noise_decay.powi(passed)))
}

/// Like [`propose`], with the way to choose as an argument, because training explores more than online use.
/// Returns none if CPU was not read.
pub fn step(
    spec: &QLearningSpec,
    state: &mut QLearningState,
    seen: &QLearningObservation,
    choice: Choice,
) -> Option<(i32, QLearningSteps)> {
    let cpu = seen.cpu.fresh().copied().filter(|cpu| cpu.is_finite());
    let Some(cpu) = cpu else {
        // The next cost would be assigned to a state that was not observed.
        state.last = None;
        return None;
    };
    let (pods, bucket) = (seen.pods, bucket(cpu));
    let cost = match (seen.expired.fresh(), seen.pod_seconds.fresh()) {
        (Some(expired), Some(pod_seconds)) => Some(pod_seconds + spec.penalty * expired).filter(|cost| cost.is_finite()),
        _ => None,
    };
    if let (Some(last), Some(cost)) = (state.last, cost) {
        learn(&mut state.table, spec, last, -cost, (pods, bucket));
    }
    let mut rng = chance(spec.seed, state.decisions);
    state.decisions += 1;
    let greedy = best(&state.table, pods, bucket, &mut rng);
    let chosen = choose(&state.table, pods, greedy, choice, &mut rng);
    let (action, guard) = if spec.guards { guarded(spec, &state.table, pods, bucket, cpu, chosen) } else { (chosen, None) };
    state.last = Some(TakenAction { pods, bucket, action });
    let q = std::array::from_fn(|action| state.table.legal(pods, action).then(|| state.table.value(pods, bucket, action)));
    let steps = QLearningSteps { bucket, q, greedy: ACTIONS[greedy], action: ACTIONS[action], guard: guard.map(str::to_owned), cost };
    Some((pods + ACTIONS[action], steps))
}

/// Q(s,a) += α (r + γ max Q(s',a') − Q(s,a)), where the maximum is over the actions that are legal in s'.
fn learn(table: &mut QTable, spec: &QLearningSpec, last: TakenAction, reward: f64, next: (i32, usize)) {
    let future = (0..ACTIONS.len()).filter(|&action| table.legal(next.0, action)).map(|action| table.value(next.0, next.1, action));
    let future = future.fold(f64::NEG_INFINITY, f64::max);
    let future = if future.is_finite() { future } else { 0.0 };
    let value = table.value_mut(last.pods, last.bucket, last.action);
    *value += spec.alpha * (reward + spec.gamma * future - *value);
}

/// The legal action with the highest value; one of them at random if several are equal.
fn best(table: &QTable, pods: i32, bucket: usize, rng: &mut ChaCha8Rng) -> usize {
    let legal = (0..ACTIONS.len()).filter(|&action| table.legal(pods, action));
    let highest = legal.clone().map(|action| table.value(pods, bucket, action)).fold(f64::NEG_INFINITY, f64::max);
    pick(legal.filter(|&action| table.value(pods, bucket, action) >= highest), rng)
}

fn choose(table: &QTable, pods: i32, greedy: usize, choice: Choice, rng: &mut ChaCha8Rng) -> usize {
    let legal = |action: &usize| table.legal(pods, *action);
    match choice {
        Choice::Neighbour(share) if rng.random::<f64>() < share => {
            pick((greedy.saturating_sub(1)..(greedy + 2).min(ACTIONS.len())).filter(legal), rng)
        }
        Choice::Anything(share) if rng.random::<f64>() < share => pick((0..ACTIONS.len()).filter(legal), rng),
        _ => greedy,
    }
}

/// One of the candidates at random; "no change" if there is none (a workload outside of its bounds).
fn pick(candidates: impl Iterator<Item = usize> + Clone, rng: &mut ChaCha8Rng) -> usize {
    match candidates.clone().count() {
        0 => STAY,
        count => candidates.clone().nth(rng.random_range(0..count)).unwrap_or(STAY),
    }
}

/// Guards: add a pod at full CPU; never remove one if the remaining pods would be too busy.
fn guarded(spec: &QLearningSpec, table: &QTable, pods: i32, bucket: usize, cpu: f64, action: usize) -> (usize, Option<&'static str>) {
    let more = ACTIONS.len() - 1;
    if bucket == BUCKETS - 1 {
        let highest = if table.legal(pods, more) { more } else { STAY };
        return (highest, (highest != action).then_some("CPU is full: a pod is added"));
    }
    let projected = cpu.clamp(0.0, 1.0) * spec.capacity.of(pods) / spec.capacity.of(pods - 1);
    if action == 0 && (projected.is_nan() || projected > HOT) {
        return (STAY, Some("the remaining pods would be too busy: no pod is removed"));
    }
    (action, None)
}

/// The random generator of one decision: the same seed and decision number give the same random numbers.
fn chance(seed: u64, decision: u64) -> ChaCha8Rng {
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    rng.set_stream(decision);
    rng
}
