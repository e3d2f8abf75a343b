//! The processes of this machine, from /proc.

/// Pids and command lines of all processes.
pub fn processes() -> impl Iterator<Item = (i32, Vec<u8>)> {
    std::fs::read_dir("/proc").into_iter().flatten().flatten().filter_map(|entry| {
        let pid = entry.file_name().to_str()?.parse().ok()?;
        Some((pid, std::fs::read(entry.path().join("cmdline")).ok()?))
    })
}

/// Whether `all` contains `part`.
pub fn contains(all: &[u8], part: &[u8]) -> bool {
    all.windows(part.len()).any(|window| window == part)
}
