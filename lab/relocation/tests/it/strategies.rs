//! Properties of every strategy on random draws.

use drover_lab_relocation::{Draw, Limits, NodeSize, Packed, Preference, Strategy, optimum, paper_policy, replay, together};
use drover_scheduling::{Policy, WhenFull};
use proptest::prelude::*;

use crate::{assert_sound, cases};

const STEPS: u64 = 20_000;

fn drover(policy: Policy, when_full: WhenFull) -> Strategy {
    Strategy::Drover { policy, when_full, steps: STEPS }
}

fn strategies() -> Vec<Strategy> {
    vec![
        Strategy::Reject,
        drover(Policy::default(), WhenFull::Overflow),
        drover(Policy::default(), WhenFull::Preferred),
        drover(paper_policy(), WhenFull::Overflow),
        Strategy::PaperText(paper_policy()),
        Strategy::Published(paper_policy(), Limits(100)),
        Strategy::Published(paper_policy(), Limits(200)),
    ]
}

proptest! {
    #![proptest_config(cases(30))]

    #[test]
    fn no_strategy_exceeds_a_cluster_or_the_optimum(seed in any::<u64>(), percent in 70..=130_u32, preferred in any::<bool>()) {
        let (draw, size) = (Draw::new(seed), NodeSize::for_demand(percent));
        let preference = if preferred { Preference::PRIVATE_FIRST } else { Preference::NONE };
        let best = optimum(&draw, size, 1_000_000);
        for strategy in strategies() {
            let run = replay(&draw, size, preference, &strategy);
            assert_sound(&draw, size, &run.places);
            prop_assert!(run.running().len() <= best.at_most, "{strategy:?}");
            prop_assert!(matches!(together(&draw, size, &run.running(), 1_000_000), Packed::Fits(_)), "{strategy:?}");
            prop_assert_eq!(&run, &replay(&draw, size, preference, &strategy), "the same seed gives the same answer");
            if !matches!(strategy, Strategy::Published(..)) {
                prop_assert_eq!(run.stopped(), 0, "{:?}", strategy);
                prop_assert!(run.arrivals.iter().zip(&run.places).all(|(arrival, at)| arrival.runs != at.iter().any(Option::is_none)));
                let partly = run.places.iter().filter(|at| at.iter().any(Option::is_some) && at.iter().any(Option::is_none)).count();
                prop_assert_eq!(partly, 0, "an application runs as a whole or not at all");
            }
        }
    }
}
