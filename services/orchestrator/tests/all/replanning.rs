//! Operations that search for room in several rounds.

use crate::base::member;
use crate::scenarios::{approved, full, plan, run};

/// Round 1 has a plan, which fails, so it never overflows. Round 2 has none and overflows, which fails too. Undo releases what the
/// decisions claimed, and asks for no decision that was never made.
#[tokio::test]
async fn undo_of_a_round_that_never_overflowed_asks_for_no_decision() {
    let (fakes, stack, ..) = full().await;
    let newcomer = approved(&stack, "insisting", "900m", &["a"], Some("preferred")).await;
    let stale = fakes.clone();
    fakes.plans.then(move || plan(&stale, "victim", "b", &[], "insisting"));
    fakes.ledger.foreign(&member("b"), 900);
    let before = fakes.ledger.decisions();

    let failed = run(&stack, &format!("{newcomer}/instantiate")).await;

    assert_eq!((failed["state"].as_str(), failed["code"].as_str()), (Some("failed"), Some("plan_infeasible")), "{failed:#}");
    assert_eq!(fakes.plans.count(), 2, "a second round planned again");
    assert_eq!(fakes.ledger.decisions() - before, 3, "a decision in each round and one overflow, in the second");
    assert_eq!(fakes.ledger.summary(), ["victim@a held"]);
}
