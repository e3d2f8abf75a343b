//! Memory of the node: of the whole machine, or of a cgroup that is treated as the node.

use std::io;
use std::path::Path;

use drover_memguard::NodeMemory;

use super::Group;
use super::files::NumberFile;

/// Where the memory of the node is read.
#[derive(Debug)]
pub enum NodeMemorySource {
    /// `/proc/meminfo`: capacity is `MemTotal`, use is `MemTotal - MemAvailable`.
    Meminfo(MeminfoFile),
    /// A cgroup: capacity is its limit, use is its working set.
    Group(Box<GroupFiles>),
}

/// The open file `/proc/meminfo`.
#[derive(Debug)]
pub struct MeminfoFile(NumberFile);

/// The open memory files of a cgroup.
#[derive(Debug)]
pub struct GroupFiles {
    group: Group,
    usage: NumberFile,
    stat: NumberFile,
    inactive: &'static str,
    machine: MeminfoFile,
}

impl NodeMemorySource {
    /// Reads the memory of the machine.
    ///
    /// # Errors
    /// When the file cannot be opened.
    pub fn machine(meminfo: &Path) -> io::Result<Self> {
        Ok(Self::Meminfo(MeminfoFile(NumberFile::open(meminfo)?)))
    }

    /// Reads the memory of a cgroup. One without a limit has the capacity of the machine.
    ///
    /// # Errors
    /// When the cgroup does not exist.
    pub fn group(group: Group, meminfo: &Path) -> io::Result<Self> {
        let (usage, inactive) =
            if group.v2 { ("memory.current", "inactive_file") } else { ("memory.usage_in_bytes", "total_inactive_file") };
        Ok(Self::Group(Box::new(GroupFiles {
            usage: NumberFile::open(&group.memory.join(usage))?,
            stat: NumberFile::open(&group.memory.join("memory.stat"))?,
            inactive,
            machine: MeminfoFile(NumberFile::open(meminfo)?),
            group,
        })))
    }

    /// Reads use and capacity.
    ///
    /// # Errors
    /// When a file cannot be read or lacks a number.
    pub fn read(&self) -> io::Result<NodeMemory> {
        match self {
            Self::Meminfo(file) => file.read(),
            Self::Group(files) => {
                let inactive = files.stat.keyed(files.inactive)?.unwrap_or(0);
                let used = files.usage.number()?.saturating_sub(inactive);
                let capacity = match files.group.limit()? {
                    Some(limit) => limit,
                    None => files.machine.read()?.capacity,
                };
                Ok(NodeMemory { used, capacity })
            }
        }
    }
}

impl MeminfoFile {
    fn read(&self) -> io::Result<NodeMemory> {
        let (Some(total), Some(available)) = self.0.two("MemTotal", "MemAvailable")? else {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "/proc/meminfo lacks MemTotal or MemAvailable"));
        };
        Ok(NodeMemory { used: total.saturating_sub(available) * 1024, capacity: total * 1024 })
    }
}
