//! The instances of the experiment and the best values known for them.

use crate::catalogue::{Setting, big, paper, sock_shop_compose};
use drover_scheduling::groups::{Instance, Traffic};

/// The best known value of an instance.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct BestKnown {
    /// The objective, rounded up to five decimal places.
    pub value: f64,
    /// Whether it is proven optimal.
    pub proven: bool,
}

/// A named instance of the experiment.
#[derive(Clone, Debug)]
pub struct BenchmarkCase {
    /// The name in tables and checks.
    pub name: &'static str,
    pub instance: Instance,
    /// The best known value; `None` if values are not comparable because not every container can be placed.
    pub best: Option<BestKnown>,
}

/// How many containers of the tight and skewed instance (aspect 1.6) can be placed at all, proven by a linear program in
/// tests/it/milp.rs. It has 117.
pub const TIGHT_AT_MOST: usize = 111;

/// Sock Shop at the paper's three scales. The best values are those of the default setting.
pub fn scales(setting: Setting) -> Vec<BenchmarkCase> {
    let known = |name, scale, value, proven| BenchmarkCase {
        name,
        instance: paper(&sock_shop_compose(), Setting { scale, ..setting }),
        best: Some(BestKnown { value, proven }),
    };
    vec![known("x1", 1, 0.07013, true), known("x3", 3, 0.07368, false), known("x9", 9, 0.02558, false)]
}

/// Sock Shop with replicas that call each other round robin.
pub fn uniform() -> Vec<BenchmarkCase> {
    let known = |name, scale, value| BenchmarkCase {
        name,
        instance: paper(&sock_shop_compose(), Setting { scale, traffic: Traffic::Uniform, ..Setting::default() }),
        best: Some(BestKnown { value, proven: false }),
    };
    vec![known("x3 uniform", 3, 0.1353), known("x9 uniform", 9, 0.2123)]
}

/// x9 on nodes rich in CPU or in memory: the specification's aspect, and the largest of 1.3 and 1.4 at which all containers fit.
pub fn tight() -> Vec<BenchmarkCase> {
    let case = |name, aspect| BenchmarkCase {
        name,
        instance: paper(&sock_shop_compose(), Setting { scale: 9, aspect, ..Setting::default() }),
        best: None,
    };
    vec![case("tight 1.6", 1.6), case("tight 1.4", 1.4)]
}

/// 100 and 1,000 nodes of mixed applications.
pub fn large() -> Vec<BenchmarkCase> {
    let known =
        |name, copies, nodes, value| BenchmarkCase { name, instance: big(copies, nodes), best: Some(BestKnown { value, proven: false }) };
    vec![known("big 100", 30, 100, 0.01623), known("big 1000", 300, 1000, 0.01708)]
}
