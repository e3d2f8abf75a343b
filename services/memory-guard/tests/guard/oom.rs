//! The whole mechanism: real containers in a cgroup with limited memory, the real OOM killer, each policy. It runs half of the cycles of
//! the long test, which is also `drover experiment memory-guard --real`.

use drover_lab_node::{POLICIES, Trial, trial};

use crate::support::{ALONE, missing, program, say};

/// With at least this many kills without a guard, the comparison with a guard is meaningful.
const ENOUGH: usize = 12;
/// Most cycles of a job, for a machine so busy that few containers with shorter jobs are killed.
const LONGEST: u32 = 80;

async fn run(policy: &'static str, seed: u64, cycles: u32) -> Trial {
    let trial = trial(program(), policy, seed, cycles).await.unwrap();
    say(&format!("{trial:?}"));
    trial
}

/// All policies run at the same time, so that any other load affects all of them.
async fn run_all(seed: u64, cycles: u32) -> [Trial; 4] {
    let [none, paper, bank, gate_bank] = POLICIES;
    tokio::join!(run(none, seed, cycles), run(paper, seed, cycles), run(bank, seed, cycles), run(gate_bank, seed, cycles)).into()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_policy_has_fewer_oom_kills_than_no_guard() {
    if missing("each_policy_has_fewer_oom_kills_than_no_guard") {
        return;
    }
    let _alone = ALONE.lock().await;
    // A busy machine starts containers so slowly that few run at once and hardly any is killed; then the jobs are made longer.
    let mut cycles = 20;
    let [none, guarded @ ..] = loop {
        let trials = run_all(1, cycles).await;
        if trials[0].outcome.restarts >= ENOUGH || cycles >= LONGEST {
            break trials;
        }
        cycles *= 2;
    };
    assert!(none.outcome.restarts > 0, "the kernel killed nothing without a guard, so this run proves nothing");
    let [paper, ours @ ..] = guarded;
    assert!(paper.totals.is_some_and(|totals| totals.pauses > 0), "{paper:?}");
    // The paper's rule halves the kills, which one run in about twenty does not show; then a second seed counts together with the first.
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
async fn bank_and_gate_avoid_nine_of_ten_oom_kills_over_five_seeds() {
    if missing("bank_and_gate_avoid_nine_of_ten_oom_kills_over_five_seeds") {
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
