//! `drover autoscale measure`: the preparation of a simulation. Sets a Deployment to several numbers of pods, finds by a load how many
//! requests per second each number serves and how long a pod takes to serve, and writes what `simulate` and `train` read.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use clap::Args;
use drover_autoscaler::policy::ScalingPolicy;
use drover_autoscaling::qlearning::Capacity;
use drover_autoscaling::{Mode, Pause};
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::autoscaling::v2::HorizontalPodAutoscaler;
use kube::api::{ListParams, ObjectList, Patch, PatchParams};
use kube::{Api, Client};
use reqwest::Url;
use serde::Serialize;
use serde_json::json;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, sleep_until, timeout};

use super::cluster::PlaceArgs;
use super::ramp::Ramp;
use crate::globals::Format;
use crate::output;

/// Share of the requests that must be answered in time for a rate to count as served.
const SERVED: f64 = 0.98;
/// Time limit for pods to become ready.
const READY: Duration = Duration::from_secs(600);

/// `drover autoscale measure`.
#[derive(Args, Debug)]
#[command(after_help = "Example:\n  drover autoscale measure web -n shop --url http://web.example/ --pods 1,2,4 --out measured/")]
pub struct MeasureArgs {
    /// Name of the Deployment.
    pub name: String,
    /// Its cluster.
    #[command(flatten)]
    pub place: PlaceArgs,
    /// URL that all its pods answer together; requests are sent by GET.
    #[arg(long, value_name = "URL")]
    pub url: Url,
    /// Numbers of pods to measure, separated by commas; at least two.
    #[arg(long, value_delimiter = ',', default_value = "1,2,3", value_parser = clap::value_parser!(i32).range(1..=100))]
    pub pods: Vec<i32>,
    /// Seconds after which a request counts as expired.
    #[arg(long, value_name = "SECONDS", default_value_t = 0.5)]
    pub timeout: f64,
    /// Seconds for which each rate is tried.
    #[arg(long, value_name = "SECONDS", default_value_t = 10.0)]
    pub during: f64,
    /// The first rate, in requests per second.
    #[arg(long, value_name = "RATE", default_value_t = 10.0)]
    pub start: f64,
    /// No higher rate is tried.
    #[arg(long, value_name = "RATE", default_value_t = 2_000.0)]
    pub highest: f64,
    /// Directory for the results.
    #[arg(long, value_name = "DIR")]
    pub out: PathBuf,
}

/// The result.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Measured {
    /// Pods, and the requests per second that they serve.
    points: Vec<(i32, f64)>,
    capacity: Capacity,
    /// Seconds from asking for a pod until it is ready, the longest that was seen.
    delay: f64,
    timeout: f64,
    /// The options of `drover autoscale simulate` and `train`.
    options: String,
}

/// Runs the command.
///
/// # Errors
/// The Deployment cannot be read or scaled, something else scales it, its pods do not become ready, or the measured points fit no curve.
pub async fn run(args: &MeasureArgs, format: Format) -> Result<()> {
    let mut pods = args.pods.clone();
    pods.sort_unstable();
    pods.dedup();
    ensure!(pods.len() >= 2, "--pods: two different numbers of pods or more are needed");
    ensure!(
        args.timeout > 0.0 && args.during >= 1.0 && args.start > 0.0 && args.highest >= args.start,
        "--timeout, --during, --start and --highest must be above 0, --during 1 or more, and --highest no less than --start"
    );
    ensure!(args.timeout <= 3_600.0 && args.during <= 3_600.0, "--timeout and --during are at most 3600 s");
    // Before minutes are spent on what could not be written.
    std::fs::create_dir_all(&args.out).with_context(|| format!("cannot make {}", args.out.display()))?;
    let client = args.place.client().await?;
    let target = Target::of(&client, args).await?;
    let before = target.replicas().await?;
    let measured = tokio::select! {
        measured = target.measure(&pods, args) => measured,
        _ = tokio::signal::ctrl_c() => Err(anyhow::anyhow!("interrupted")),
    };
    target.set(before).await.with_context(|| format!("the Deployment had {before} replicas before, and could not be set to them again"))?;
    let (points, delay) = measured?;
    let file = args.out.join("capacity.csv");
    let rows: String = points.iter().map(|(pods, rate)| format!("{pods},{rate:.1}\n")).collect();
    std::fs::write(&file, format!("pods,requests per second\n{rows}")).with_context(|| format!("cannot write {}", file.display()))?;
    let capacity = Capacity::fit(&points)?;
    let most = pods.last().copied().unwrap_or(1);
    let options = format!("--capacity {} --delay {delay} --timeout {} --max-pods {most}", file.display(), args.timeout);
    let result = Measured { points, capacity, delay, timeout: args.timeout, options };
    match format {
        Format::Table | Format::Wide => output::write_stdout(&story(&result)),
        Format::Json | Format::Yaml => output::print(format, &result, |_| (Vec::new(), Vec::new())),
    }
}

fn story(measured: &Measured) -> String {
    let Measured { points, capacity, delay, options, .. } = measured;
    let points: String = points.iter().map(|(pods, rate)| format!("{pods:>4} pods serve {rate:.1} requests per second\n")).collect();
    format!(
        "{points}capacity: {:.1} per pod and {:.1} fixed; a pod is ready after {delay} s\n  drover autoscale simulate {options}",
        capacity.per_pod, capacity.fixed
    )
}

/// The Deployment that is measured.
struct Target {
    deployments: Api<Deployment>,
    name: String,
}

impl Target {
    async fn of(client: &Client, args: &MeasureArgs) -> Result<Self> {
        let (name, namespace) = (&args.name, &args.place.namespace);
        if let Some(other) = scaler(client, namespace, name).await? {
            bail!("{other} scales {name} too; pause it or delete it while it is measured");
        }
        Ok(Self { deployments: Api::namespaced(client.clone(), namespace), name: name.clone() })
    }

    async fn replicas(&self) -> Result<i32> {
        let found = self.deployments.get_opt(&self.name).await.context("the Deployment cannot be read")?;
        let found = found.with_context(|| format!("there is no Deployment {}", self.name))?;
        Ok(found.spec.and_then(|spec| spec.replicas).unwrap_or(1))
    }

    async fn set(&self, replicas: i32) -> Result<()> {
        let scale = Patch::Merge(json!({"spec": {"replicas": replicas}}));
        self.deployments.patch_scale(&self.name, &PatchParams::default(), &scale).await.context("the Deployment cannot be scaled")?;
        Ok(())
    }

    /// Waits until this many pods are ready, and no others run.
    async fn until_ready(&self, replicas: i32) -> Result<()> {
        let ready = async {
            loop {
                let status = self.deployments.get(&self.name).await?.status.unwrap_or_default();
                if status.ready_replicas.unwrap_or(0) == replicas && status.replicas.unwrap_or(0) == replicas {
                    return Ok(());
                }
                sleep(Duration::from_millis(200)).await;
            }
        };
        timeout(READY, ready).await.with_context(|| format!("{replicas} pods were not ready after {} s", READY.as_secs()))?
    }

    /// The requests per second that each number of pods serves, and the longest time until a pod was ready, in whole seconds.
    async fn measure(&self, pods: &[i32], args: &MeasureArgs) -> Result<(Vec<(i32, f64)>, f64)> {
        let http = reqwest::Client::builder().redirect(reqwest::redirect::Policy::none()).build()?;
        let (mut points, mut delay) = (Vec::new(), 0.0_f64);
        self.set(1).await?;
        self.until_ready(1).await?;
        for count in pods {
            let asked = Instant::now();
            self.set(*count).await?;
            self.until_ready(*count).await?;
            delay = delay.max(asked.elapsed().as_secs_f64());
            let mut ramp = Ramp::new(args.start, args.highest);
            while let Some(rate) = ramp.next() {
                let share = load(&http, args, rate).await?;
                eprintln!("{count} pods, {rate:.1} requests per second: {:.1} % answered in time", share * 100.0);
                ramp.tried(rate, share >= SERVED);
            }
            points.push((*count, ramp.found().with_context(|| format!("{count} pods do not answer {} in {} s", args.url, args.timeout))?));
        }
        Ok((points, delay.ceil()))
    }
}

/// What else scales a Deployment.
async fn scaler(client: &Client, namespace: &str, name: &str) -> Result<Option<String>> {
    let all = ListParams::default();
    let hpas = known(Api::<HorizontalPodAutoscaler>::namespaced(client.clone(), namespace).list(&all).await)?;
    let hpa = hpas
        .into_iter()
        .find(|hpa| hpa.spec.as_ref().is_some_and(|spec| spec.scale_target_ref.kind == "Deployment" && spec.scale_target_ref.name == name));
    if let Some(hpa) = hpa {
        return Ok(Some(format!("HorizontalPodAutoscaler {}", hpa.metadata.name.unwrap_or_default())));
    }
    let policies = known(Api::<ScalingPolicy>::namespaced(client.clone(), namespace).list(&all).await)?;
    let acts = |policy: &ScalingPolicy| {
        let scaling = &policy.spec.scaling;
        scaling.mode == Mode::Apply
            && scaling.pause != Some(Pause::All)
            && scaling.target.kind == "Deployment"
            && scaling.target.name == name
    };
    Ok(policies.into_iter().find(acts).map(|policy| format!("ScalingPolicy {}", policy.metadata.name.unwrap_or_default())))
}

/// The objects of a list; none if the cluster does not know the kind.
fn known<K: Clone>(list: kube::Result<ObjectList<K>>) -> Result<Vec<K>> {
    match list {
        Ok(list) => Ok(list.items),
        Err(kube::Error::Api(status)) if status.code == 404 => Ok(Vec::new()),
        Err(error) => Err(error).context("it cannot be read what else scales the Deployment"),
    }
}

/// Sends requests at this rate, whether or not earlier ones were answered. Returns the share that was answered in time.
async fn load(http: &reqwest::Client, args: &MeasureArgs, rate: f64) -> Result<f64> {
    let patience = Duration::from_secs_f64(args.timeout);
    let began = Instant::now();
    let mut asked = JoinSet::new();
    let (mut sent, mut served) = (0_u32, 0_u32);
    while f64::from(sent) < (rate * args.during).max(1.0) {
        let due = began + Duration::from_secs_f64(f64::from(sent) / rate);
        sleep_until(due).await;
        let request = http.get(args.url.clone());
        asked.spawn(async move {
            let answer = tokio::time::timeout_at(due + patience, async { request.send().await?.error_for_status()?.bytes().await }).await;
            answer.is_ok_and(|answer| answer.is_ok())
        });
        sent += 1;
    }
    while let Some(answered) = asked.join_next().await {
        served += u32::from(answered?);
    }
    Ok(f64::from(served) / f64::from(sent))
}
