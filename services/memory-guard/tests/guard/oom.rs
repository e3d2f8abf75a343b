//! The whole mechanism: real containers on a memory-limited cgroup, the real OOM killer, each policy; half of the cycles of the long run,
//! which is also `drover experiment memory-guard --real`.

use drover_lab_node::{POLICIES, Trial, trial};

use crate::support::{ALONE, missing, program, say};

/// So many kills without a guard tell something of those with one.
const ENOUGH: usize = 12;
/// Cycles of a job on a machine so starved that fewer are killed of shorter ones.
const LONGEST: u32 = 80;

async fn run(policy: &'static str, seed: u64, cycles: u32) -> Trial {
    let trial = trial(program(), policy, seed, cycles).await.unwrap();
    say(&format!("{trial:?}"));
    trial
}

/// All policies at once: whatever else the machine does, it does to all of them.
async fn run_all(seed: u64, cycles: u32) -> [Trial; 4] {
    let [none, paper, bank, gate_bank] = POLICIES;
    tokio::join!(run(none, seed, cycles), run(paper, seed, cycles), run(bank, seed, cycles), run(gate_bank, seed, cycles)).into()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn fewer_containers_are_killed_with_a_guard_than_without() {
    if missing("fewer_containers_are_killed_with_a_guard_than_without") {
        return;
    }
    let _alone = ALONE.lock().await;
    // A starved machine starts containers so slowly that few run at once, and hardly anybody is killed: longer jobs then.
    let mut cycles = 20;
    let [none, guarded @ ..] = loop {
        let trials = run_all(1, cycles).await;
        if trials[0].outcome.restarts >= ENOUGH || cycles >= LONGEST {
            break trials;
        }
        cycles *= 2;
    };
    assert!(none.outcome.restarts > 0, "without a guard the kernel kills: else this proves nothing");
    let [paper, ours @ ..] = guarded;
    assert!(paper.totals.is_some_and(|totals| totals.pauses > 0), "{paper:?}");
    // The paper's rule halves what is killed, and one run in some twenty does not show that: a second seed counts with the first then.
    let mut both = [none.outcome.restarts, paper.outcome.restarts];
    if both[1] >= both[0] {
        let (none, paper) = tokio::join!(run("none", 2, cycles), run("paper", 2, cycles));
        both = [both[0] + none.outcome.restarts, both[1] + paper.outcome.restarts];
    }
    assert!(both[1] < both[0], "without a guard and with the paper's rule: {both:?}");
    for trial in ours {
        assert!(trial.outcome.restarts < none.outcome.restarts, "{trial:?}, without a guard: {none:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "long: five seeds of four workflows at once, about twenty minutes"]
async fn over_five_seeds_the_bank_and_the_gate_spare_nine_of_ten() {
    if missing("over_five_seeds_the_bank_and_the_gate_spare_nine_of_ten") {
        return;
    }
    let _alone = ALONE.lock().await;
    let mut sums = [0; 4];
    for seed in 1..=5 {
        for (sum, trial) in sums.iter_mut().zip(run_all(seed, 40).await) {
            *sum += trial.outcome.restarts;
        }
    }
    let [none, paper, bank, gate_bank] = sums;
    say(&format!("restarts over five seeds: none {none}, paper {paper}, bank {bank}, gate-bank {gate_bank}"));
    assert!(bank * 10 <= none && gate_bank * 10 <= none);
}
