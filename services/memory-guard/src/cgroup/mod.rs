//! What the kernel tells about a container, and the files by which it is held. All of it is plain file access, without a process or
//! daemon in between.
//!
//! Both versions of cgroups are supported. The freezer is the file that **runc itself** uses (`freezer.state` on v1, `cgroup.freeze` on
//! v2), so the runtime sees the pause: an exec fails at once ("cannot exec in a paused container"), a kill works, and thawing needs no
//! other process. (On a hybrid machine `unified/…/cgroup.freeze` is another freezer, unknown to the runtime, and is never used.)

mod files;
mod node;

use std::io;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use files::{NumberFile, overwrite, word};
pub use node::NodeMemorySource;

/// A CPU quota: `quota` microseconds of CPU time per `period`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CpuQuota {
    /// Microseconds per period; -1 means no quota.
    pub quota: i64,
    /// Length of a period in microseconds.
    pub period: u64,
}

/// The version of cgroups and where it is mounted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Hierarchy {
    /// Version 1, with a directory per controller.
    V1(PathBuf),
    /// Version 2, with one directory.
    V2(PathBuf),
}

impl Hierarchy {
    /// Detects the version mounted at `root`, usually `/sys/fs/cgroup`.
    ///
    /// # Errors
    /// When neither version has a memory controller there.
    pub fn detect(root: &Path) -> io::Result<Self> {
        if std::fs::read_to_string(root.join("cgroup.controllers")).is_ok_and(|list| list.split_whitespace().any(|name| name == "memory")) {
            return Ok(Self::V2(root.to_owned()));
        }
        if root.join("memory").is_dir() {
            return Ok(Self::V1(root.to_owned()));
        }
        Err(io::Error::new(io::ErrorKind::NotFound, format!("{} has no memory controller: is it a cgroup mount?", root.display())))
    }

    /// `v1` or `v2`.
    pub fn version(&self) -> &'static str {
        match self {
            Self::V1(_) => "v1",
            Self::V2(_) => "v2",
        }
    }

    /// The cgroup that the content of `/proc/PID/cgroup` names.
    ///
    /// # Errors
    /// When the text names no memory cgroup.
    pub fn group_of(&self, membership: &str) -> io::Result<Group> {
        let path = |controller: &str| {
            membership.lines().find_map(|line| {
                let mut parts = line.splitn(3, ':').skip(1);
                let (names, path) = (parts.next()?, parts.next()?);
                names.split(',').any(|name| name == controller).then(|| path.trim_start_matches('/'))
            })
        };
        let missing = || io::Error::new(io::ErrorKind::InvalidData, "no memory cgroup in its membership");
        Ok(match self {
            Self::V1(root) => {
                let memory = path("memory").ok_or_else(missing)?;
                Group {
                    memory: root.join("memory").join(memory),
                    cpu: root.join("cpu").join(path("cpu").unwrap_or(memory)),
                    freezer: Freezer::V1(root.join("freezer").join(path("freezer").unwrap_or(memory))),
                    v2: false,
                }
            }
            Self::V2(root) => Group::v2(root.join(path("").ok_or_else(missing)?)),
        })
    }

    /// The cgroup at `path`, which is the same in every hierarchy.
    pub fn group_at(&self, path: &str) -> Group {
        let path = path.trim_start_matches('/');
        match self {
            Self::V1(root) => Group {
                memory: root.join("memory").join(path),
                cpu: root.join("cpu").join(path),
                freezer: Freezer::V1(root.join("freezer").join(path)),
                v2: false,
            },
            Self::V2(root) => Group::v2(root.join(path)),
        }
    }
}

/// The freezer of a cgroup, by its directory. It is kept in the journal, so that thawing needs nothing else.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Freezer {
    /// Version 1: the directory contains `freezer.state`.
    V1(PathBuf),
    /// Version 2: the directory contains `cgroup.freeze`.
    V2(PathBuf),
}

impl Freezer {
    /// Freezes the processes of the cgroup.
    ///
    /// # Errors
    /// When the cgroup is gone or its file cannot be written.
    pub fn freeze(&self) -> io::Result<()> {
        match self {
            Self::V1(dir) => overwrite(&dir.join("freezer.state"), "FROZEN"),
            Self::V2(dir) => overwrite(&dir.join("cgroup.freeze"), "1"),
        }
    }

    /// Thaws the processes of the cgroup. This does no harm if they run.
    ///
    /// # Errors
    /// When the cgroup is gone or its file cannot be accessed.
    pub fn thaw(&self) -> io::Result<()> {
        match self {
            Self::V1(dir) => overwrite(&dir.join("freezer.state"), "THAWED"),
            Self::V2(dir) => overwrite(&dir.join("cgroup.freeze"), "0"),
        }
    }

    /// Whether freezing was requested. It may take a moment until all threads have stopped.
    ///
    /// # Errors
    /// When the cgroup is gone or its file cannot be accessed.
    pub fn frozen(&self) -> io::Result<bool> {
        Ok(match self {
            Self::V1(dir) => word(&dir.join("freezer.state"))? != "THAWED",
            Self::V2(dir) => word(&dir.join("cgroup.freeze"))? != "0",
        })
    }

    /// Whether the freezer's file exists.
    pub fn there(&self) -> bool {
        match self {
            Self::V1(dir) => dir.join("freezer.state").exists(),
            Self::V2(dir) => dir.join("cgroup.freeze").exists(),
        }
    }
}

/// A cgroup: its directories and its freezer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Group {
    memory: PathBuf,
    cpu: PathBuf,
    freezer: Freezer,
    v2: bool,
}

impl Group {
    fn v2(dir: PathBuf) -> Self {
        Self { memory: dir.clone(), cpu: dir.clone(), freezer: Freezer::V2(dir), v2: true }
    }

    /// The freezer of this cgroup.
    pub fn freezer(&self) -> &Freezer {
        &self.freezer
    }

    /// The directory with its CPU files.
    pub fn cpu_dir(&self) -> &Path {
        &self.cpu
    }

    /// The directory with its memory files.
    pub fn memory_dir(&self) -> &Path {
        &self.memory
    }

    /// The memory limit in bytes; `None` if there is none.
    ///
    /// # Errors
    /// When the cgroup is gone.
    pub fn limit(&self) -> io::Result<Option<u64>> {
        files::limit(&self.memory.join(if self.v2 { "memory.max" } else { "memory.limit_in_bytes" }))
    }

    ///
    /// # Errors
    /// When the cgroup is gone.
    pub fn sampler(&self) -> io::Result<Sampler> {
        let (usage, stat, inactive) = if self.v2 {
            ("memory.current", "memory.stat", "inactive_file")
        } else {
            ("memory.usage_in_bytes", "memory.stat", "total_inactive_file")
        };
        Ok(Sampler {
            usage: NumberFile::open(&self.memory.join(usage))?,
            stat: NumberFile::open(&self.memory.join(stat))?,
            inactive,
            cached: 0,
            reads: 0,
        })
    }

    /// How many of its processes the OOM killer has killed.
    ///
    /// # Errors
    /// When the cgroup is gone.
    pub fn oom_kills(&self) -> io::Result<u64> {
        let file = self.memory.join(if self.v2 { "memory.events" } else { "memory.oom_control" });
        files::keyed(&std::fs::read_to_string(file)?, "oom_kill").ok_or_else(|| io::Error::from(io::ErrorKind::InvalidData))
    }

    /// The CPU quota of this cgroup.
    ///
    /// # Errors
    /// When the cgroup is gone or has no CPU controller.
    pub fn cpu_quota(&self) -> io::Result<CpuQuota> {
        read_quota(&self.cpu)
    }

    /// The path of its `memory.high`; `None` on v1.
    pub fn high_file(&self) -> Option<PathBuf> {
        self.v2.then(|| self.memory.join("memory.high")).filter(|file| file.exists())
    }
}

/// Reads a CPU quota from the directory of either version.
///
/// # Errors
/// When the directory is gone or has no CPU files.
pub fn read_quota(dir: &Path) -> io::Result<CpuQuota> {
    let bad = || io::Error::from(io::ErrorKind::InvalidData);
    let (quota, period) = match word(&dir.join("cpu.cfs_quota_us")) {
        Ok(quota) => (quota, word(&dir.join("cpu.cfs_period_us"))?),
        Err(_) => {
            let both = word(&dir.join("cpu.max"))?;
            let (quota, period) = both.split_once(' ').ok_or_else(bad)?;
            (quota.replace("max", "-1"), period.to_owned())
        }
    };
    Ok(CpuQuota { quota: quota.parse().map_err(|_| bad())?, period: period.parse().map_err(|_| bad())? })
}

/// Writes a CPU quota into the directory of either version. The runtime does not learn of it.
///
/// # Errors
/// When the directory is gone, has no CPU files, or the kernel refuses the values.
pub fn write_quota(dir: &Path, to: CpuQuota) -> io::Result<()> {
    if dir.join("cpu.max").exists() {
        let quota = if to.quota < 0 { "max".to_owned() } else { to.quota.to_string() };
        return std::fs::write(dir.join("cpu.max"), format!("{quota} {}", to.period));
    }
    // The quota is lifted first. Otherwise the kernel could refuse the old quota with the new period for exceeding the parent's.
    std::fs::write(dir.join("cpu.cfs_quota_us"), "-1")?;
    std::fs::write(dir.join("cpu.cfs_period_us"), to.period.to_string())?;
    std::fs::write(dir.join("cpu.cfs_quota_us"), to.quota.to_string())
}

/// The open memory files of a cgroup, which are read at every poll.
#[derive(Debug)]
pub struct Sampler {
    usage: NumberFile,
    stat: NumberFile,
    inactive: &'static str,
    cached: u64,
    reads: u32,
}

/// Inactive file pages are read only once in this many polls, because `memory.stat` makes the kernel sum over all CPUs, and they change
/// slowly.
const STAT_EVERY: u32 = 10;

impl Sampler {
    /// The working set in bytes: usage minus inactive file pages.
    ///
    /// # Errors
    /// When the cgroup is gone.
    pub fn working_set(&mut self) -> io::Result<u64> {
        if self.reads.is_multiple_of(STAT_EVERY) {
            self.cached = self.stat.keyed(self.inactive)?.unwrap_or(0);
        }
        self.reads = self.reads.wrapping_add(1);
        Ok(self.usage.number()?.saturating_sub(self.cached))
    }
}
