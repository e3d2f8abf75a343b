//! What the agent needs beside a hundred containers: resident memory and CPU. Prints; judges nothing (`cargo test --release … footprint`).

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use drover_memory_guard::fake::{Fake, FakeContainer};

use crate::support::agent::Start;

const CONTAINERS: usize = 100;
const MEASURED: Duration = Duration::from_secs(20);

/// CPU seconds and resident bytes of a process.
fn usage(pid: u32) -> (f64, u64) {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    let fields: Vec<u64> = stat.rsplit(") ").next().unwrap().split(' ').filter_map(|field| field.parse().ok()).collect();
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let resident =
        status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap().trim().trim_end_matches(" kB").trim().parse::<u64>().unwrap();
    // Without the state letter the numbers begin at field 4; utime and stime are 14 and 15, in hundredths.
    ((fields[10] + fields[11]) as f64 / 100.0, resident * 1024)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "long: measures for half a minute; meaningful in a release build on a quiet machine"]
async fn beside_a_hundred_containers() {
    let dir = tempfile::tempdir_in("/dev/shm").unwrap();
    let (root, proc, socket, state) = (dir.path().join("cgroup"), dir.path().join("proc"), dir.path().join("s"), dir.path().join("state"));
    let fake = Fake::default();
    fake.serve(&socket).unwrap();
    std::fs::create_dir_all(proc.join("self")).unwrap();
    std::fs::write(proc.join("meminfo"), "MemTotal: 33554432 kB\nMemAvailable: 16777216 kB\n").unwrap();
    for number in 0..CONTAINERS {
        let path = format!("kubepods/burstable/pod{number}/c{number}");
        let group = root.join(&path);
        std::fs::create_dir_all(&group).unwrap();
        // A real memory.stat is 50 lines.
        let stat = (0..50).map(|line| format!("counter_{line} 123456789\n")).collect::<String>() + "inactive_file 4096\n";
        for (file, content) in [
            ("memory.current", "104857600\n"),
            ("memory.max", "268435456\n"),
            ("memory.high", "max\n"),
            ("memory.stat", &stat),
            ("cgroup.freeze", "0\n"),
            ("cpu.max", "50000 100000\n"),
        ] {
            std::fs::write(group.join(file), content).unwrap();
        }
        let labels = BTreeMap::from([("memguard/pausable".to_owned(), "true".to_owned())]);
        fake.put(
            &format!("{number:064}"),
            FakeContainer { namespace: "jobs".into(), labels, cgroups_path: format!("/{path}"), ..FakeContainer::default() },
        );
    }
    std::fs::write(root.join("cgroup.controllers"), "cpu memory\n").unwrap();
    let start = Start::new(&state, &socket).args(["--mode", "apply", "--poll", "200ms"]);
    let mut start = start;
    start.args.extend(["--cgroup-root".into(), root.display().to_string(), "--proc".into(), proc.display().to_string()]);
    let agent = start.start();
    agent.status_when("all are seen", |status| status.containers.len() == CONTAINERS).await;
    let pid = agent.child.id().unwrap();
    let watchdog = agent.watchdog().unwrap().as_raw().cast_unsigned();
    tokio::time::sleep(Duration::from_secs(3)).await;
    let (began, before, before_dog) = (Instant::now(), usage(pid), usage(watchdog));
    tokio::time::sleep(MEASURED).await;
    let (after, after_dog) = (usage(pid), usage(watchdog));
    let share = |before: f64, after: f64| 100.0 * (after - before) / began.elapsed().as_secs_f64();
    let mib = |bytes: u64| bytes as f64 / (1 << 20) as f64;
    println!("agent: {:.1} MiB, {:.2} % of a core", mib(after.1), share(before.0, after.0));
    println!("watchdog: {:.1} MiB, {:.2} % of a core", mib(after_dog.1), share(before_dog.0, after_dog.0));
    agent.stop().await;
}
