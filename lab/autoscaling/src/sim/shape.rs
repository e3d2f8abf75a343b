//! Shapes of generated load.
//!
//! `Launch` and `Idle` are fitted to what is published of two traces that are not part of this project: NASA's web server in July 1995
//! (NASA-HTTP in the Internet Traffic Archive), scaled to a peak of 948.4 requests per second, which four of the paper's pods serve. A
//! curve, a slow drift and random arrivals make the course. Its rates are then replaced, in their order, by those of a distribution that has
//! the published points; the points between them are quantiles of the imported log. So every seed has the published shares of seconds above
//! a rate, and seeds differ only in when that is. `Daily` is invented.

use rand::Rng;
use rand_chacha::ChaCha8Rng;
use rand_distr::{Distribution, StandardNormal};

/// Shapes of generated load.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shape {
    /// One day over the whole length, with bursts on top.
    Daily,
    /// Five and a half hours around a launch: several pods most of the time.
    Launch,
    /// Two weeks of days and nights, minutes read as seconds: one pod most of the time.
    Idle,
}

/// Points of a curve or of a distribution, with straight lines between them.
type Points = [(f64, f64)];

/// Launch: the share of seconds with a lower rate, and the rate. Published are the shares of 291.1, 510.2 and 729.3 (one to three pods),
/// the median, the mean (402) and the peak; the others are quantiles of what `drover data import` makes of the public log.
const LAUNCH_RATES: [(f64, f64); 10] = [
    (0.0, 100.0),
    (0.05, 182.0),
    (0.21, 291.1),
    (0.5, 378.0),
    (0.78, 510.2),
    (0.9, 618.0),
    (0.95, 673.0),
    (0.981, 729.3),
    (0.99, 761.0),
    (1.0, 948.4),
];
/// Idle: the same. Published are the shares of one to three pods, the 95th percentile, the mean (127) and the peak.
const IDLE_RATES: [(f64, f64); 12] = [
    (0.0, 0.0),
    (0.05, 28.0),
    (0.25, 66.0),
    (0.5, 109.0),
    (0.75, 167.0),
    (0.9, 237.0),
    (0.95, 278.0),
    (0.959, 291.1),
    (0.99, 387.0),
    (0.996, 510.2),
    (0.999_6, 729.3),
    (1.0, 948.4),
];

/// Launch: requests per second of the hours of 13 July, each at its middle as a share of the length, which begins at 08:06:41 and lasts
/// 20,000 s. Counted in what `drover data import` makes of the public log. The hour of the launch is without the burst below.
const LAUNCH_HOURS: [(f64, f64); 8] =
    [(-0.110, 1.681), (0.070, 3.213), (0.250, 3.711), (0.430, 2.837), (0.610, 2.708), (0.790, 2.370), (0.970, 2.035), (1.150, 2.077)];
/// Launch: seconds over which the published trace is averaged.
const LAUNCH_MEAN: usize = 60;
/// Idle: 20,000 minutes are this many days, from a Saturday on; the launch is in the morning of the thirteenth.
const IDLE_DAYS: f64 = 20_000.0 / 1_440.0;
/// How a load differs from its curve. Chosen so that neighbouring seconds and minutes are as much alike as in the published traces.
struct Chance {
    /// By which share it drifts away, and for which share of the length.
    drift: f64,
    memory: f64,
    /// Variance of the arrivals of a second (or minute) relative to their mean: above 1 if requests come in groups.
    dispersion: f64,
}

const LAUNCH_CHANCE: Chance = Chance { drift: 0.2, memory: 0.005, dispersion: 1.0 };
const IDLE_CHANCE: Chance = Chance { drift: 0.22, memory: 0.003, dispersion: 2.0 };

impl Shape {
    /// A load of this shape; its scale means nothing.
    pub(super) fn rates(self, seconds: usize, rng: &mut ChaCha8Rng) -> Vec<f64> {
        match self {
            Self::Daily => daily(seconds, rng),
            Self::Launch => {
                let counts = arrivals(seconds, LAUNCH_MEAN, &LAUNCH_CHANCE, launch, rng);
                let means: Vec<f64> = counts.windows(LAUNCH_MEAN).map(|window| window.iter().sum()).collect();
                fitted(&means, &LAUNCH_RATES)
            }
            Self::Idle => fitted(&arrivals(seconds, 1, &IDLE_CHANCE, idle, rng), &IDLE_RATES),
        }
    }
}

/// Requests per second at a share of the length: the hours, and the burst of the launch with its highest minute at 09:49.
fn launch(share: f64) -> f64 {
    between(&LAUNCH_HOURS, share) + 3.6 * bell(share - 0.307, 0.012)
}

/// Requests per minute at a share of the length: days with their highest hour at 14:00, less at weekends, and the day of the launch.
fn idle(share: f64) -> f64 {
    let days = share * IDLE_DAYS;
    let week = if days % 7.0 < 2.0 { 0.75 } else { 1.05 };
    let day = 1.0 + 0.48 * (std::f64::consts::TAU * (days - 14.0 / 24.0)).cos();
    let since = days - 12.0 - 9.8 / 24.0;
    48.0 * week * day * (1.0 + 1.2 * bell(since, 0.1)) + 120.0 * bell(since, 0.004)
}

/// Random arrivals around a curve, one number per second. There are `lead - 1` more of them before the first second.
fn arrivals(seconds: usize, lead: usize, by: &Chance, curve: impl Fn(f64) -> f64, rng: &mut ChaCha8Rng) -> Vec<f64> {
    let length = seconds.max(1) as f64;
    let keep = 1.0 - 1.0 / (by.memory * length).max(1.0);
    let kick = by.drift * (1.0 - keep * keep).sqrt();
    let mut chance = || -> f64 { StandardNormal.sample(rng) };
    let mut away = by.drift * chance();
    let count = |at: usize| {
        away = away * keep + kick * chance();
        let expected = (curve((at as f64 - (lead - 1) as f64) / length) * (1.0 + away)).max(0.0);
        expected + (by.dispersion * expected).sqrt() * chance()
    };
    (0..seconds + lead - 1).map(count).collect()
}

/// Replaces each rate by the one that has the same rank in the published distribution.
fn fitted(rates: &[f64], published: &Points) -> Vec<f64> {
    let mut order: Vec<usize> = (0..rates.len()).collect();
    order.sort_by(|one, other| rates[*one].total_cmp(&rates[*other]));
    let highest = rates.len().saturating_sub(1).max(1) as f64;
    let mut fitted = vec![0.0; rates.len()];
    for (rank, at) in order.into_iter().enumerate() {
        fitted[at] = between(published, rank as f64 / highest);
    }
    fitted
}

/// The value at `x` on the lines between the points.
fn between(points: &Points, x: f64) -> f64 {
    let next = points.partition_point(|(known, _)| *known < x).clamp(1, points.len() - 1);
    let ((left, from), (right, to)) = (points[next - 1], points[next]);
    from + (to - from) * (x - left) / (right - left)
}

/// A bell of height 1.
fn bell(x: f64, width: f64) -> f64 {
    (-0.5 * (x / width).powi(2)).exp()
}

/// A wave over the whole length with eight bursts.
fn daily(seconds: usize, rng: &mut ChaCha8Rng) -> Vec<f64> {
    let length = seconds.max(1) as f64;
    let bursts: Vec<(f64, f64, f64)> = (0..8)
        .map(|_| {
            let start = rng.random::<f64>() * length;
            (start, 0.35 * (0.5 + 0.5 * rng.random::<f64>()), length * 0.006 * (0.5 + rng.random::<f64>()))
        })
        .collect();
    let mut chance = || -> f64 { StandardNormal.sample(rng) };
    let mut drift = 0.0;
    let rate = |second: usize| {
        let at = second as f64;
        let wave = |phase: f64| 0.5 - 0.5 * (std::f64::consts::TAU * (at / length + phase)).cos();
        let base = 0.25 + 0.6 * wave(0.0) + 0.1 * wave(0.3) * wave(0.0);
        let burst: f64 = bursts.iter().map(|&(start, height, decay)| burst(at - start, height, decay)).sum();
        // A slow random walk with a memory of about a minute, as in load caused by many people.
        drift = drift * (1.0 - 1.0 / 60.0) + 0.01 * chance();
        ((base + burst) * (1.0 + drift + 0.08 * chance())).max(0.0)
    };
    (0..seconds).map(rate).collect()
}

/// A burst: it rises within a tenth of its decay time, then falls exponentially.
fn burst(since: f64, height: f64, decay: f64) -> f64 {
    if since < 0.0 { 0.0 } else { height * (since / (0.1 * decay)).min(1.0) * (-since / decay).exp() }
}
