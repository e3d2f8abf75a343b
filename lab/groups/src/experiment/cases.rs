//! The instances of the experiment and the best values known for them.

use crate::catalogue::{Setting, big, paper, sock_shop_compose};
use drover_scheduling::groups::{Instance, Traffic};

/// The best value anybody has seen.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Best {
    /// The objective, rounded up in the fifth place.
    pub value: f64,
    /// Nothing better exists.
    pub proven: bool,
}

/// An instance with a name.
#[derive(Clone, Debug)]
pub struct Case {
    /// As in tables and checks.
    pub name: &'static str,
    /// What is placed.
    pub instance: Instance,
    /// None: not comparable (not everything can be placed).
    pub best: Option<Best>,
}

/// How many containers of the tight and skewed instance (aspect 1.6) can be placed by anybody: proven by a linear program in
/// tests/groups/milp.rs. The specification expects all 117.
pub const TIGHT_AT_MOST: usize = 111;

/// Sock Shop at the paper's three scales. The best values hold for the default setting.
pub fn scales(setting: Setting) -> Vec<Case> {
    let known = |name, scale, value, proven| Case {
        name,
        instance: paper(&sock_shop_compose(), Setting { scale, ..setting }),
        best: Some(Best { value, proven }),
    };
    vec![known("x1", 1, 0.07013, true), known("x3", 3, 0.07368, false), known("x9", 9, 0.02558, false)]
}

/// The same where copies call each other round robin.
pub fn uniform() -> Vec<Case> {
    let known = |name, scale, value| Case {
        name,
        instance: paper(&sock_shop_compose(), Setting { scale, traffic: Traffic::Uniform, ..Setting::default() }),
        best: Some(Best { value, proven: false }),
    };
    vec![known("x3 uniform", 3, 0.1353), known("x9 uniform", 9, 0.2123)]
}

/// x9 on CPU-rich and memory-rich nodes: the specification's aspect, and the largest of 1.3 and 1.4 where all fit.
pub fn tight() -> Vec<Case> {
    let case =
        |name, aspect| Case { name, instance: paper(&sock_shop_compose(), Setting { scale: 9, aspect, ..Setting::default() }), best: None };
    vec![case("tight 1.6", 1.6), case("tight 1.4", 1.4)]
}

/// 100 and 1,000 nodes of mixed applications.
pub fn large() -> Vec<Case> {
    let known = |name, copies, nodes, value| Case { name, instance: big(copies, nodes), best: Some(Best { value, proven: false }) };
    vec![known("big 100", 30, 100, 0.01681), known("big 1000", 300, 1000, 0.01708)]
}
