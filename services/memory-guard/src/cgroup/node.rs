//! Memory of the node: all of the machine, or a cgroup, so that a part of a machine can be "the node".

use std::io;
use std::path::Path;

use drover_memguard::NodeMemory;

use super::Group;
use super::files::Numbers;

/// Where the memory of the node is read.
#[derive(Debug)]
pub enum NodeMemorySource {
    /// `/proc/meminfo`: `MemTotal`, and `MemTotal - MemAvailable`.
    Meminfo(MeminfoFile),
    /// A cgroup with a limit: its working set.
    Group(Box<GroupFiles>),
}

/// `/proc/meminfo`.
#[derive(Debug)]
pub struct MeminfoFile(Numbers);

/// The files of a cgroup.
#[derive(Debug)]
pub struct GroupFiles {
    group: Group,
    usage: Numbers,
    stat: Numbers,
    inactive: &'static str,
    machine: MeminfoFile,
}

impl NodeMemorySource {
    /// The machine.
    ///
    /// # Errors
    /// The file cannot be opened.
    pub fn machine(meminfo: &Path) -> io::Result<Self> {
        Ok(Self::Meminfo(MeminfoFile(Numbers::open(meminfo)?)))
    }

    /// A cgroup. Without a limit of its own its capacity is that of the machine.
    ///
    /// # Errors
    /// It does not exist.
    pub fn group(group: Group, meminfo: &Path) -> io::Result<Self> {
        let (usage, inactive) =
            if group.v2 { ("memory.current", "inactive_file") } else { ("memory.usage_in_bytes", "total_inactive_file") };
        Ok(Self::Group(Box::new(GroupFiles {
            usage: Numbers::open(&group.memory.join(usage))?,
            stat: Numbers::open(&group.memory.join("memory.stat"))?,
            inactive,
            machine: MeminfoFile(Numbers::open(meminfo)?),
            group,
        })))
    }

    /// Reads it.
    ///
    /// # Errors
    /// It cannot be read, or lacks a number.
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
            return Err(io::Error::new(io::ErrorKind::InvalidData, "meminfo lacks MemTotal or MemAvailable"));
        };
        Ok(NodeMemory { used: total.saturating_sub(available) * 1024, capacity: total * 1024 })
    }
}
