//! Applications that come and go: read from a file, or drawn.

use fastrand::Rng;

/// Seconds of a day.
pub const DAY: f64 = 86_400.0;
/// The header of a trace.
pub const HEADER: &str = "arrives_s,departs_s,pods,cpu_m,memory_mib,where,movable,priority,used_percent";

/// Mean time for which a drawn application runs, in seconds.
const LIFETIME: f64 = 8.0 * 3_600.0;
/// The rate of arrivals by day and night: 1 ± this.
const SWING: f64 = 0.5;
/// CPU of a pod in millicores: smallest, step, number of values.
const CPU: (i64, i64, i64) = (200, 100, 9);
/// Memory of a pod in MiB: smallest, step, number of values.
const MEMORY: (i64, i64, i64) = (256, 256, 8);
/// Most pods of an application.
const PODS: i64 = 4;

/// An application of equal pods; it runs on one member.
#[derive(Clone, Debug, PartialEq)]
pub struct App {
    /// Seconds from the begin of the trace.
    pub arrives: f64,
    pub departs: f64,
    pub pods: i64,
    /// Requests of a pod: millicores and MiB.
    pub cpu: i64,
    pub memory: i64,
    /// Label of the members on which it may run.
    pub label: String,
    /// Its owner agrees to moves.
    pub movable: bool,
    /// 1 to 10. Kubernetes kills lower ones for higher ones; Drover moves lower ones first.
    pub priority: u8,
    /// CPU that it uses, in percent of what it requests.
    pub used: i64,
}

impl App {
    /// Millicores of all its pods.
    pub fn millicores(&self) -> i64 {
        self.pods * self.cpu
    }

    /// MiB of all its pods.
    pub fn mebibytes(&self) -> i64 {
        self.pods * self.memory
    }
}

/// Applications in the order of their arrival.
#[derive(Clone, Debug, PartialEq)]
pub struct Trace {
    pub apps: Vec<App>,
    /// The end of what is counted, in seconds.
    pub ends: f64,
}

impl Trace {
    /// Reads a trace: the line [`HEADER`], then a line per application, in any order. It ends with the last departure.
    ///
    /// # Errors
    /// The number of the line that is not understood, and why.
    pub fn parse(text: &str) -> Result<Self, String> {
        let mut lines = text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty());
        match lines.next() {
            Some((_, line)) if line.trim() == HEADER => {}
            _ => return Err(format!("line 1 is not the header {HEADER}")),
        }
        let mut apps = Vec::new();
        for (at, line) in lines {
            apps.push(parse(line).map_err(|why| format!("line {}: {why}", at + 1))?);
        }
        apps.sort_by(|a: &App, b| a.arrives.total_cmp(&b.arrives));
        let ends = apps.iter().map(|app| app.departs).reduce(f64::max).ok_or("there is no application")?;
        Ok(Self { apps, ends })
    }

    /// Draws `days` of applications whose mean demand is `demand` % of so many millicores, for members in so many zones. The first eight
    /// hours fill the members.
    pub fn draw(seed: u64, days: f64, demand: u32, millicores: i64, zones: usize) -> Self {
        let mut rng = Rng::with_seed(seed);
        let mean = |(least, step, values): (i64, i64, i64)| (2 * least + step * (values - 1)) as f64 / 2.0;
        let running = millicores as f64 * f64::from(demand) / 100.0 / (mean(CPU) * (1 + PODS) as f64 / 2.0);
        let (mut at, mut apps, ends) = (0.0, Vec::new(), days * DAY);
        let exponential = |rng: &mut Rng, mean: f64| -mean * (1.0 - rng.f64()).ln();
        loop {
            // By thinning: arrivals at the highest rate, of which some do not count.
            at += exponential(&mut rng, LIFETIME / running / (1.0 + SWING));
            if at >= ends {
                return Self { apps, ends };
            }
            let rate = 1.0 - SWING * (std::f64::consts::TAU * at / DAY).cos();
            if rng.f64() * (1.0 + SWING) < rate {
                let lifetime = exponential(&mut rng, LIFETIME);
                apps.push(app(&mut rng, at, lifetime, zones));
            }
        }
    }
}

fn app(rng: &mut Rng, arrives: f64, lifetime: f64, zones: usize) -> App {
    let mut uniform = |(least, step, values): (i64, i64, i64)| least + step * rng.i64(0..values);
    let (cpu, memory, pods) = (uniform(CPU), uniform(MEMORY), uniform((1, 1, PODS)));
    // Of ten, six may run anywhere, three only in one zone, one only on private members.
    let label = match rng.u8(0..10) {
        0..6 => "all".to_owned(),
        6..9 => format!("zone-{}", 1 + rng.usize(0..zones)),
        _ => "private".to_owned(),
    };
    let (movable, priority, used) = (rng.u8(0..10) < 8, rng.u8(1..=10), rng.i64(10..=90));
    App { arrives, departs: arrives + lifetime, pods, cpu, memory, label, movable, priority, used }
}

fn parse(line: &str) -> Result<App, String> {
    let cells: Vec<&str> = line.split(',').map(str::trim).collect();
    let &[arrives, departs, pods, cpu, memory, label, movable, priority, used] = cells.as_slice() else {
        return Err(format!("{} columns instead of 9", cells.len()));
    };
    let number =
        |name: &str, text: &str| text.parse::<f64>().ok().filter(|one| one.is_finite()).ok_or(format!("{name} is no number: {text}"));
    let within = |name: &str, text: &str, least: i64, most: i64| {
        let value = text.parse::<i64>().ok().filter(|one| (least..=most).contains(one));
        value.ok_or(format!("{name} is not {least} to {most}: {text}"))
    };
    let (arrives, departs) = (number("arrives_s", arrives)?, number("departs_s", departs)?);
    if arrives < 0.0 || departs <= arrives {
        return Err(format!("it departs at {departs} s, after arriving at {arrives} s"));
    }
    Ok(App {
        arrives,
        departs,
        pods: within("pods", pods, 1, 1_000)?,
        cpu: within("cpu_m", cpu, 1, 1_000_000)?,
        memory: within("memory_mib", memory, 1, 10_000_000)?,
        label: label.to_owned(),
        movable: movable.parse().map_err(|_| format!("movable is not true or false: {movable}"))?,
        priority: within("priority", priority, 1, 10)? as u8,
        used: within("used_percent", used, 0, 100)?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn trace_is_read_and_sorted() {
        let text = format!("{HEADER}\n60,120,2,500,1024,all,true,5,50\n\n0,3600.5,1,200,256,zone-1,false,1,10\n");
        let trace = Trace::parse(&text).unwrap();
        assert_eq!((trace.apps.len(), trace.ends, trace.apps[0].departs), (2, 3600.5, 3600.5));
        assert_eq!((trace.apps[1].millicores(), trace.apps[0].label.as_str(), trace.apps[0].movable), (1000, "zone-1", false));
    }

    #[test]
    fn trace_that_is_not_understood_names_the_line() {
        for (line, why) in [("1,2,3", "3 columns"), ("5,4,1,200,256,all,true,1,10", "departs"), ("0,1,1,200,256,all,yes,1,10", "movable")] {
            let error = Trace::parse(&format!("{HEADER}\n{line}\n")).unwrap_err();
            assert!(error.starts_with("line 2") && error.contains(why), "{error}");
        }
        assert!(Trace::parse("").is_err() && Trace::parse(HEADER).is_err());
    }

    #[test]
    fn drawn_trace_has_the_demand_that_is_asked_for() {
        let trace = Trace::draw(1, 20.0, 85, 1_000_000, 3);
        let area: f64 = trace.apps.iter().map(|app| app.millicores() as f64 * (app.departs.min(trace.ends) - app.arrives)).sum();
        let share = area / (1_000_000.0 * trace.ends);
        assert!((share - 0.85).abs() < 0.03, "{share}");
        assert_eq!(trace, Trace::draw(1, 20.0, 85, 1_000_000, 3));
    }
}
