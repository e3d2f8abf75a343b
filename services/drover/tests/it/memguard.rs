//! `drover memguard status` and `explain`, run as programs with the real agent, on plain files instead of cgroups and with a fake container
//! runtime.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use drover_memory_guard::fake::{FakeContainer, FakeRuntime};
use serde_json::Value;

/// Time limit, only to prevent hanging.
const PATIENCE: Duration = Duration::from_secs(180);

struct Agent(Child);

/// Ends the agent with SIGTERM, so that it ends its watchdog.
impl Drop for Agent {
    fn drop(&mut self) {
        let pid = nix::unistd::Pid::from_raw(self.0.id().cast_signed());
        let _ = nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGTERM);
        let began = Instant::now();
        while self.0.try_wait().unwrap().is_none() {
            assert!(began.elapsed() < PATIENCE, "the agent does not end");
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

fn drover(args: &[&str], socket: &Path) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_drover"));
    command.args(args).arg("--socket").arg(socket).stdin(Stdio::null()).output().unwrap()
}

fn container(fake: &FakeRuntime, root: &Path, id: &str, pausable: bool) {
    let path = format!("kubepods/burstable/pod1/{id}");
    let group = root.join(&path);
    std::fs::create_dir_all(&group).unwrap();
    let files = [
        ("memory.current", "104857600"),
        ("memory.max", "209715200"),
        ("memory.high", "max"),
        ("memory.stat", "inactive_file 0"),
        ("cgroup.freeze", "0"),
        ("cpu.max", "50000 100000"),
    ];
    for (name, content) in files {
        std::fs::write(group.join(name), format!("{content}\n")).unwrap();
    }
    let labels = BTreeMap::from([("memguard/pausable".to_owned(), pausable.to_string())]);
    let cgroups_path = format!("/{path}");
    fake.put(id, FakeContainer { namespace: "jobs".into(), labels, cgroups_path, ..FakeContainer::default() });
}

#[test]
fn status_and_explain_report_what_a_running_agent_does() {
    let dir = tempfile::tempdir().unwrap();
    let (root, proc, runtime) = (dir.path().join("cgroup"), dir.path().join("proc"), dir.path().join("runtime.sock"));
    let (state, socket) = (dir.path().join("state"), dir.path().join("state/agent.sock"));
    let nobody = drover(&["memguard", "status"], &socket);
    assert!(!nobody.status.success() && String::from_utf8_lossy(&nobody.stderr).contains("does drover-memory-guard run on this node"));

    std::fs::create_dir_all(proc.join("self")).unwrap();
    std::fs::create_dir_all(&root).unwrap();
    std::fs::write(root.join("cgroup.controllers"), "cpu memory\n").unwrap();
    std::fs::write(proc.join("meminfo"), "MemTotal: 1048576 kB\nMemAvailable: 104857 kB\n").unwrap();
    let fake = FakeRuntime::default();
    for (id, pausable) in [("a", true), ("b", false)] {
        container(&fake, &root, id, pausable);
    }
    let tokio = tokio::runtime::Runtime::new().unwrap();
    let _inside = tokio.enter();
    fake.serve(&runtime).unwrap();
    // Pauses every container that may be paused.
    let settings = serde_json::json!({
        "policy": {"policy": "paper", "upper": 0.0, "lower": 0.0, "perRound": 9, "round": 3600},
        "safety": {"keepRunning": 0, "levers": ["freeze"], "highFirst": false, "maxPause": 3600},
    });
    let file = dir.path().join("settings.json");
    std::fs::write(&file, settings.to_string()).unwrap();
    let program = Path::new(env!("CARGO_BIN_EXE_drover")).with_file_name("drover-memory-guard");
    assert!(program.exists(), "{} is not built: cargo build --workspace --bins", program.display());
    let mut command = Command::new(program);
    command.arg("run").arg("--state").arg(&state).arg("--runtime").arg(&runtime).arg("--settings").arg(&file);
    // Its dead man's switch waits for three polls: a machine that pauses for a moment is to release nothing.
    command.arg("--cgroup-root").arg(&root).arg("--proc").arg(&proc).args(["--mode", "apply", "--poll", "1000ms"]).stderr(Stdio::null());
    let _agent = Agent(command.spawn().unwrap());

    let began = Instant::now();
    let status = loop {
        let output = drover(&["memguard", "status", "-o", "json"], &socket);
        if let Ok(status) = serde_json::from_slice::<Value>(&output.stdout)
            && status["totals"]["pauses"] == 1
            && status["pressure"]["held"] == 1
        {
            break status;
        }
        assert!(began.elapsed() < PATIENCE, "{output:?}");
        std::thread::sleep(Duration::from_millis(50));
    };
    // A gigabyte less the memory that the kubelet keeps free.
    assert_eq!(status["pressure"]["capacity"], 924 << 20, "{status:#}");
    assert!(status["memorySource"].as_str().is_some_and(|told| told.contains("100 MiB below which the kubelet evicts")), "{status:#}");
    assert_eq!((&status["policy"], &status["mode"]), (&Value::from("paper"), &Value::from("apply")));
    let text = String::from_utf8(drover(&["memguard", "status"], &socket).stdout).unwrap();
    for line in ["mode      apply", "policy    paper (the settings file says so)", "gate      none (the policy has no gate)", "1 pauses"] {
        assert!(text.contains(line), "no {line:?} in\n{text}");
    }
    let row = |name: &str| text.lines().find(|line| line.starts_with(name)).unwrap_or_else(|| panic!("no {name} in\n{text}")).to_owned();
    assert!(row("jobs/pod-a/main").contains("paused for") && row("jobs/pod-a/main").contains("upper bound"), "{text}");
    assert!(row("jobs/pod-b/main").contains("running") && row("jobs/pod-b/main").contains("memguard/pausable=false"), "{text}");

    let held = drover(&["memguard", "explain", "jobs/pod-a"], &socket);
    let story = String::from_utf8(held.stdout).unwrap();
    assert!(held.status.success() && story.contains("uses 100 MiB of 200 MiB") && story.contains("is paused for"), "{story}");
    assert!(!story.contains("(not done)") && !story.contains("pod-b"), "{story}");
    let unknown = drover(&["memguard", "explain", "jobs/pod-x"], &socket);
    assert!(!unknown.status.success() && String::from_utf8_lossy(&unknown.stderr).contains("`drover memguard status` lists them"));
}
