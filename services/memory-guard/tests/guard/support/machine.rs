//! A machine made of plain files with a fake runtime, for tests that run without root.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use drover_lab_node::Start;
use drover_memory_guard::fake::{FakeContainer, FakeRuntime};

use super::guard;

/// A machine with cgroup v2, made of files, and its fake runtime.
pub struct FakeMachine {
    pub dir: tempfile::TempDir,
    pub fake: FakeRuntime,
}

impl FakeMachine {
    /// A machine whose runtime runs.
    pub fn new() -> Self {
        let machine = Self::without_runtime();
        machine.start_runtime();
        machine
    }

    /// A machine whose runtime has not started yet.
    pub fn without_runtime() -> Self {
        let machine = Self { dir: tempfile::tempdir().unwrap(), fake: FakeRuntime::default() };
        let root = machine.root();
        std::fs::create_dir_all(&root).unwrap();
        std::fs::create_dir_all(machine.proc().join("self")).unwrap();
        std::fs::write(root.join("cgroup.controllers"), "cpuset cpu io memory pids\n").unwrap();
        std::fs::write(machine.proc().join("meminfo"), "MemTotal: 1048576 kB\nMemFree: 10 kB\nMemAvailable: 104857 kB\n").unwrap();
        machine
    }

    pub fn start_runtime(&self) {
        self.fake.serve(&self.socket()).unwrap();
    }

    pub fn root(&self) -> PathBuf {
        self.dir.path().join("cgroup")
    }

    pub fn proc(&self) -> PathBuf {
        self.dir.path().join("proc")
    }

    pub fn socket(&self) -> PathBuf {
        self.dir.path().join("runtime.sock")
    }

    pub fn group(&self, id: &str) -> PathBuf {
        self.root().join("kubepods/burstable/pod1").join(id)
    }

    /// Creates the cgroup of a container that may be held, and returns the container.
    pub fn container(&self, id: &str) -> FakeContainer {
        let group = self.group(id);
        std::fs::create_dir_all(&group).unwrap();
        for (file, content) in [
            ("memory.current", "00000000000104857600"),
            ("memory.max", "209715200"),
            ("memory.high", "max"),
            ("memory.stat", "anon 104857600\ninactive_file 0\n"),
            ("cgroup.freeze", "0"),
            ("cpu.max", "50000 100000"),
        ] {
            std::fs::write(group.join(file), format!("{content}\n")).unwrap();
        }
        FakeContainer {
            namespace: "jobs".into(),
            labels: BTreeMap::from([("memguard/pausable".to_owned(), "true".to_owned())]),
            cgroups_path: format!("/kubepods/burstable/pod1/{id}"),
            ..FakeContainer::default()
        }
    }

    pub fn add(&self, id: &str) {
        self.fake.put(id, self.container(id));
    }

    /// Changes the memory that a container uses, in place and in one write, as the kernel does.
    pub fn uses(&self, id: &str, bytes: u64) {
        let file = std::fs::OpenOptions::new().write(true).open(self.group(id).join("memory.current")).unwrap();
        std::os::unix::fs::FileExt::write_all_at(&file, format!("{bytes:020}").as_bytes(), 0).unwrap();
    }

    pub fn read(&self, id: &str, file: &str) -> String {
        std::fs::read_to_string(self.group(id).join(file)).unwrap().trim().to_owned()
    }

    pub fn start<'a>(&self, state: &'a Path, socket: &'a Path) -> Start<'a> {
        self.start_waiting(state, socket, "20000ms")
    }

    /// The same with another time limit for answers of the runtime.
    pub fn start_waiting<'a>(&self, state: &'a Path, socket: &'a Path, deadline: &str) -> Start<'a> {
        let (root, proc) = (self.root().display().to_string(), self.proc().display().to_string());
        let mut start = guard(state, socket).args(["--mode", "apply", "--poll", "200ms", "--deadline", deadline]);
        start.args.extend(["--cgroup-root".to_owned(), root, "--proc".to_owned(), proc]);
        start
    }
}
