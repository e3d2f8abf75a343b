//! What the kernel says about a container, and the files by which it is held. Plain file reads: no process, no daemon.
//!
//! Both versions of cgroups. The freezer is the file that **runc itself** uses (`freezer.state` on v1, `cgroup.freeze` on v2), so that the
//! runtime sees the pause: an exec into it fails at once ("cannot exec in a paused container"), a kill works, and whoever thaws it needs
//! nobody's help. (On a hybrid machine `unified/…/cgroup.freeze` is another freezer, of which the runtime knows nothing: never used.)

mod files;
mod node;

use std::io;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use files::{Numbers, tell, word};
pub use node::NodeMemorySource;

/// CPU quota: `quota` microseconds per `period`; -1 is none.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CpuQuota {
    /// Microseconds per period; -1 is without bound.
    pub quota: i64,
    /// Microseconds.
    pub period: u64,
}

/// Where the hierarchies are mounted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Hierarchy {
    /// A directory per controller.
    V1(PathBuf),
    /// One directory.
    V2(PathBuf),
}

impl Hierarchy {
    /// Looks at `root`, usually `/sys/fs/cgroup`.
    ///
    /// # Errors
    /// Neither version has a memory controller there.
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

    /// The group whose membership `/proc/PID/cgroup` describes.
    ///
    /// # Errors
    /// The text names no memory group.
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

    /// The group of that path, the same in every hierarchy.
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

/// A freezer: the directory with its file. Kept in the journal, so that thawing needs nothing else.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Freezer {
    /// `freezer.state` below it.
    V1(PathBuf),
    /// `cgroup.freeze` below it.
    V2(PathBuf),
}

impl Freezer {
    /// Stops it.
    ///
    /// # Errors
    /// The group is gone, or may not be written.
    pub fn freeze(&self) -> io::Result<()> {
        match self {
            Self::V1(dir) => tell(&dir.join("freezer.state"), "FROZEN"),
            Self::V2(dir) => tell(&dir.join("cgroup.freeze"), "1"),
        }
    }

    /// Lets it go on. Harmless if it runs.
    ///
    /// # Errors
    /// As [`Freezer::freeze`].
    pub fn thaw(&self) -> io::Result<()> {
        match self {
            Self::V1(dir) => tell(&dir.join("freezer.state"), "THAWED"),
            Self::V2(dir) => tell(&dir.join("cgroup.freeze"), "0"),
        }
    }

    /// Whether it was told to stop (it may need a moment until all threads do).
    ///
    /// # Errors
    /// As [`Freezer::freeze`].
    pub fn frozen(&self) -> io::Result<bool> {
        Ok(match self {
            Self::V1(dir) => word(&dir.join("freezer.state"))? != "THAWED",
            Self::V2(dir) => word(&dir.join("cgroup.freeze"))? != "0",
        })
    }

    /// Whether there is a freezer at all.
    pub fn there(&self) -> bool {
        match self {
            Self::V1(dir) => dir.join("freezer.state").exists(),
            Self::V2(dir) => dir.join("cgroup.freeze").exists(),
        }
    }
}

/// The cgroup of a container.
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

    /// Its freezer.
    pub fn freezer(&self) -> &Freezer {
        &self.freezer
    }

    /// Directory with its CPU files.
    pub fn cpu_dir(&self) -> &Path {
        &self.cpu
    }

    /// Directory with its memory files.
    pub fn memory_dir(&self) -> &Path {
        &self.memory
    }

    /// Memory limit in bytes.
    ///
    /// # Errors
    /// The group is gone.
    pub fn limit(&self) -> io::Result<Option<u64>> {
        files::limit(&self.memory.join(if self.v2 { "memory.max" } else { "memory.limit_in_bytes" }))
    }

    /// Opens the files that are read at every poll.
    ///
    /// # Errors
    /// The group is gone.
    pub fn sampler(&self) -> io::Result<Sampler> {
        let (usage, stat, inactive) = if self.v2 {
            ("memory.current", "memory.stat", "inactive_file")
        } else {
            ("memory.usage_in_bytes", "memory.stat", "total_inactive_file")
        };
        Ok(Sampler {
            usage: Numbers::open(&self.memory.join(usage))?,
            stat: Numbers::open(&self.memory.join(stat))?,
            inactive,
            cached: 0,
            reads: 0,
        })
    }

    /// How many processes the OOM killer took from it.
    ///
    /// # Errors
    /// The group is gone.
    pub fn oom_kills(&self) -> io::Result<u64> {
        let file = self.memory.join(if self.v2 { "memory.events" } else { "memory.oom_control" });
        files::keyed(&std::fs::read_to_string(file)?, "oom_kill").ok_or_else(|| io::Error::from(io::ErrorKind::InvalidData))
    }

    /// Its CPU quota.
    ///
    /// # Errors
    /// The group is gone, or has no CPU controller.
    pub fn cpu_quota(&self) -> io::Result<CpuQuota> {
        read_quota(&self.cpu)
    }

    /// File of its `memory.high`, on v2.
    pub fn high_file(&self) -> Option<PathBuf> {
        self.v2.then(|| self.memory.join("memory.high")).filter(|file| file.exists())
    }
}

/// Reads a quota, whichever version the directory is of.
///
/// # Errors
/// The directory is gone, or has no CPU files.
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

/// Writes a quota, whichever version the directory is of. The runtime does not learn of it.
///
/// # Errors
/// As [`read_quota`], or the kernel refuses the values.
pub fn write_quota(dir: &Path, to: CpuQuota) -> io::Result<()> {
    if dir.join("cpu.max").exists() {
        let quota = if to.quota < 0 { "max".to_owned() } else { to.quota.to_string() };
        return std::fs::write(dir.join("cpu.max"), format!("{quota} {}", to.period));
    }
    // Lifted first: no pair of the old quota and the new period can then be refused for being more than the parent's.
    std::fs::write(dir.join("cpu.cfs_quota_us"), "-1")?;
    std::fs::write(dir.join("cpu.cfs_period_us"), to.period.to_string())?;
    std::fs::write(dir.join("cpu.cfs_quota_us"), to.quota.to_string())
}

/// The open files of a group that are read at every poll.
#[derive(Debug)]
pub struct Sampler {
    usage: Numbers,
    stat: Numbers,
    inactive: &'static str,
    cached: u64,
    reads: u32,
}

/// Inactive file pages are read every so many polls: `memory.stat` makes the kernel add up all CPUs, and they change slowly.
const STAT_EVERY: u32 = 10;

impl Sampler {
    /// Working set in bytes: usage minus inactive file pages.
    ///
    /// # Errors
    /// The group is gone.
    pub fn working_set(&mut self) -> io::Result<u64> {
        if self.reads.is_multiple_of(STAT_EVERY) {
            self.cached = self.stat.keyed(self.inactive)?.unwrap_or(0);
        }
        self.reads = self.reads.wrapping_add(1);
        Ok(self.usage.number()?.saturating_sub(self.cached))
    }
}
