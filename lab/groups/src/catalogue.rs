//! The catalogue: three applications that placement is measured on, and the instances made from them.
//!
//! Call rates were derived from the sources of the applications (weights of the load generator times calls per handler). Requests are
//! those of the public manifests, and assumed where a manifest sets none (all of Bookinfo, the databases of Sock Shop). The nodes are
//! inferred from the paper's figures: 15 nodes of sizes 1:2:3 that are 89 % full at the large scale.

use drover_scheduling::groups::{CallGraph, Grouping, Instance, Limits, Load, Place, RESOURCES, Rules, Service, Traffic, Variant};

/// The largest group size of the paper.
pub const RHO: usize = 4;

type Row = (&'static str, f64, f64);
type Edge = (&'static str, &'static str, f64);

fn app(services: &[Row], calls: &[Edge]) -> CallGraph {
    let services =
        services.iter().map(|(name, cpu, mem)| Service { name: (*name).to_owned(), request: [*cpu, *mem], replicas: 1 }).collect();
    CallGraph::named(services, calls.iter().copied()).unwrap_or_else(|e| unreachable!("the tables below are valid: {e}"))
}

/// Weaveworks' Sock Shop, 14 services; calls per iteration of its load test.
pub fn sock_shop() -> CallGraph {
    app(
        &[
            ("front-end", 100.0, 300.0),
            ("catalogue", 100.0, 100.0),
            ("catalogue-db", 100.0, 200.0),
            ("carts", 100.0, 200.0),
            ("carts-db", 100.0, 200.0),
            ("orders", 100.0, 300.0),
            ("orders-db", 100.0, 200.0),
            ("payment", 99.0, 100.0),
            ("queue-master", 100.0, 300.0),
            ("rabbitmq", 100.0, 200.0),
            ("session-db", 50.0, 64.0),
            ("shipping", 100.0, 300.0),
            ("user", 100.0, 100.0),
            ("user-db", 100.0, 200.0),
        ],
        &[
            ("front-end", "catalogue", 2.0),
            ("front-end", "user", 4.0),
            ("front-end", "carts", 3.0),
            ("front-end", "orders", 1.0),
            ("front-end", "session-db", 10.0),
            ("catalogue", "catalogue-db", 2.0),
            ("user", "user-db", 17.0),
            ("carts", "carts-db", 18.0),
            ("orders", "user", 3.0),
            ("orders", "carts", 1.0),
            ("orders", "payment", 1.0),
            ("orders", "shipping", 1.0),
            ("orders", "orders-db", 1.0),
            ("shipping", "rabbitmq", 1.0),
            ("rabbitmq", "queue-master", 1.0),
        ],
    )
}

/// Istio's Bookinfo, 6 services; calls per product page.
pub fn bookinfo() -> CallGraph {
    const THIRD: f64 = 0.3333;
    app(
        &[
            ("productpage", 100.0, 128.0),
            ("details", 50.0, 64.0),
            ("reviews-v1", 100.0, 512.0),
            ("reviews-v2", 100.0, 512.0),
            ("reviews-v3", 100.0, 512.0),
            ("ratings", 50.0, 64.0),
        ],
        &[
            ("productpage", "details", 1.0),
            ("productpage", "reviews-v1", THIRD),
            ("productpage", "reviews-v2", THIRD),
            ("productpage", "reviews-v3", THIRD),
            ("reviews-v2", "ratings", THIRD),
            ("reviews-v3", "ratings", THIRD),
        ],
    )
}

/// Google's Online Boutique (Hipster Shop), 11 services without the load generator; calls per task of that generator.
pub fn online_boutique() -> CallGraph {
    app(
        &[
            ("frontend", 100.0, 64.0),
            ("adservice", 200.0, 180.0),
            ("cartservice", 200.0, 64.0),
            ("checkoutservice", 100.0, 64.0),
            ("currencyservice", 100.0, 64.0),
            ("emailservice", 100.0, 64.0),
            ("paymentservice", 100.0, 64.0),
            ("productcatalogservice", 100.0, 64.0),
            ("recommendationservice", 100.0, 220.0),
            ("shippingservice", 100.0, 64.0),
            ("redis-cart", 70.0, 200.0),
        ],
        &[
            ("cartservice", "redis-cart", 1.5789),
            ("checkoutservice", "cartservice", 0.1053),
            ("checkoutservice", "currencyservice", 0.1818),
            ("checkoutservice", "emailservice", 0.0526),
            ("checkoutservice", "paymentservice", 0.0526),
            ("checkoutservice", "productcatalogservice", 0.1292),
            ("checkoutservice", "shippingservice", 0.1053),
            ("frontend", "adservice", 0.8421),
            ("frontend", "cartservice", 1.3158),
            ("frontend", "checkoutservice", 0.0526),
            ("frontend", "currencyservice", 4.2775),
            ("frontend", "productcatalogservice", 6.9091),
            ("frontend", "recommendationservice", 1.0526),
            ("frontend", "shippingservice", 0.3158),
            ("recommendationservice", "productcatalogservice", 1.0526),
        ],
    )
}

/// Sock Shop as docker-compose runs it: 13 services without session-db. The application of the paper's evaluation.
pub fn sock_shop_compose() -> CallGraph {
    sock_shop().without(&["session-db"])
}

/// Nodes of sizes 1, 2 and 3, a third each, which `demand` fills to the share `full`. Even nodes have more CPU by the factor `aspect`,
/// odd ones more memory.
pub fn nodes(count: usize, demand: Load, full: f64, aspect: f64) -> Vec<Place> {
    let weight = |i: usize, r: usize| {
        let size = (i * 3 / count + 1) as f64;
        let a = if i.is_multiple_of(2) { aspect } else { 1.0 / aspect };
        if r == 0 { size * a.sqrt() } else { size / a.sqrt() }
    };
    let sum: Load = std::array::from_fn(|r| (0..count).map(|i| weight(i, r)).sum());
    let capacity = |i: usize| std::array::from_fn::<f64, RESOURCES, _>(|r| demand[r] / full * weight(i, r) / sum[r]);
    (0..count).map(|i| Place::new(format!("node-{}", i + 1), capacity(i), i)).collect()
}

/// The parameters of an instance. All published numbers were measured with [`Setting::default`].
#[derive(Clone, Copy, Debug)]
pub struct Setting {
    /// Replicas of each service.
    pub scale: usize,
    /// How replicas call replicas.
    pub traffic: Traffic,
    /// Largest group size; `None` for no groups.
    pub rho: Option<usize>,
    /// The grouping algorithm.
    pub variant: Variant,
    /// Ratio of CPU to memory of the nodes: 1 for nodes of one shape, 1.6 for the skewed ones.
    pub aspect: f64,
}

impl Default for Setting {
    fn default() -> Self {
        Self { scale: 1, traffic: Traffic::Local, rho: Some(RHO), variant: Variant::Merge, aspect: 1.0 }
    }
}

/// `app` at a scale on the paper's 15 nodes, whose size does not depend on the scale.
pub fn paper(app: &CallGraph, setting: Setting) -> Instance {
    let graph = app.scaled_to(setting.scale);
    let places = nodes(15, sock_shop_compose().scaled_to(9).demand(), 0.89, setting.aspect);
    build(&graph, setting, places)
}

/// Mixed applications on many nodes: `copies` of them, in turn Sock Shop, Bookinfo and Online Boutique with 1 to 6 replicas of each
/// service; 75 % full, aspect 1.3. 30 on 100 nodes are 1,030 containers, 300 on 1,000 nodes are 10,300.
pub fn big(copies: usize, count: usize) -> Instance {
    let apps = [sock_shop_compose(), bookinfo(), online_boutique()];
    let scaled: Vec<CallGraph> = (0..copies).map(|i| apps[i % 3].scaled_to(1 + i % 6)).collect();
    let graph = CallGraph::beside(scaled.iter().enumerate().map(|(i, g)| (format!("app-{i}"), g)));
    let places = nodes(count, graph.demand(), 0.75, 1.3);
    build(&graph, Setting::default(), places)
}

fn build(graph: &CallGraph, setting: Setting, places: Vec<Place>) -> Instance {
    let limits = Limits { nodes: places.iter().map(|p| p.capacity).collect(), ..Limits::default() };
    let grouping = Grouping::of(graph, setting.rho, setting.variant, &limits);
    let instance = grouping.map(|g| Instance::new(graph, setting.traffic, &g, places, Rules::default()));
    match instance {
        Ok(Ok(instance)) => instance,
        Ok(Err(e)) => unreachable!("the tables above are valid: {e}"),
        Err(e) => unreachable!("few services: {e}"),
    }
}
