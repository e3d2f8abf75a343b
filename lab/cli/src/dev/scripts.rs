//! The scripts of deploy/local-kube, embedded in this program so that `drover dev kube` works without a checkout.
//!
//! They are unpacked into a directory of the cache whose name depends on their content. The directory gets its name only after all files
//! are written, so one that exists is complete.

use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;

use anyhow::{Context, Result};

macro_rules! embedded {
    ($($path:literal),* $(,)?) => {
        &[$(($path, include_str!(concat!("../../../../deploy/local-kube/", $path)))),*]
    };
}

const FILES: &[(&str, &str)] = embedded![
    "build.sh",
    "containerd/build.sh",
    "containerd/go.mod",
    "containerd/go.sum",
    "containerd/tools.go",
    "control-plane.sh",
    "helm/go.mod",
    "helm/go.sum",
    "helm/tools.go",
    "images/mkimage.py",
    "images/pause/main.go",
    "kube.sh",
    "kubernetes/go.mod",
    "kubernetes/go.sum",
    "kubernetes/tools.go",
    "kwok/10-pods.yaml",
    "kwok/20-nodes.yaml",
    "kwok/30-usage.yaml",
    "kwok/40-metrics.yaml",
    "kwok/metrics-apiservice.yaml.in",
    "lib.sh",
    "node/10-bridge.conflist.in",
    "node/containerd-2.toml.in",
    "node/containerd.toml.in",
    "node/kubelet.yaml.in",
    "node/node.sh",
];

/// The directory of the scripts: `DROVER_LOCAL_KUBE`, or the one in the cache, into which they are unpacked first if need be.
///
/// # Errors
/// The scripts cannot be unpacked.
pub fn directory() -> Result<PathBuf> {
    if let Some(dir) = std::env::var_os("DROVER_LOCAL_KUBE") {
        return Ok(dir.into());
    }
    let cache = match std::env::var_os("DROVER_CACHE") {
        Some(cache) => PathBuf::from(cache),
        None => PathBuf::from(std::env::var_os("HOME").context("neither DROVER_CACHE nor HOME is set")?).join(".cache/drover"),
    };
    let dir = cache.join(format!("local-kube-{:016x}", version()));
    if !dir.exists() {
        unpack(&cache, &dir).with_context(|| format!("cannot unpack the scripts of local clusters into {}", dir.display()))?;
    }
    Ok(dir)
}

fn unpack(cache: &std::path::Path, dir: &std::path::Path) -> Result<()> {
    std::fs::create_dir_all(cache)?;
    let partial = tempfile::Builder::new().prefix("local-kube-partial-").tempdir_in(cache)?;
    for (path, text) in FILES {
        let file = partial.path().join(path);
        if let Some(parent) = file.parent() {
            std::fs::create_dir_all(parent)?;
        }
        std::fs::write(&file, text)?;
        let mode = if path.ends_with(".sh") { 0o755 } else { 0o644 };
        std::fs::set_permissions(&file, std::fs::Permissions::from_mode(mode))?;
    }
    std::fs::set_permissions(partial.path(), std::fs::Permissions::from_mode(0o755))?;
    match std::fs::rename(partial.path(), dir) {
        // Another process unpacked the same files at the same time.
        Err(_) if dir.exists() => Ok(()),
        other => Ok(other?),
    }
}

/// FNV-1a over all paths and texts, to tell versions of the scripts apart.
fn version() -> u64 {
    let bytes = FILES.iter().flat_map(|(path, text)| path.bytes().chain([0]).chain(text.bytes()).chain([0]));
    bytes.fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    #[test]
    fn all_files_of_the_directory_are_embedded() {
        fn walk(dir: &Path, found: &mut Vec<String>, root: &Path) {
            for entry in std::fs::read_dir(dir).unwrap().map(Result::unwrap) {
                match entry.file_type().unwrap().is_dir() {
                    true => walk(&entry.path(), found, root),
                    false => found.push(entry.path().strip_prefix(root).unwrap().to_str().unwrap().to_owned()),
                }
            }
        }
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../deploy/local-kube");
        let mut found = Vec::new();
        walk(&root, &mut found, &root);
        // Only tests need a registry, and definitions of other projects.
        found.retain(|file| file != "README.md" && file != "crds.sh" && !file.starts_with("registry/"));
        found.sort();
        assert_eq!(found, FILES.iter().map(|(path, _)| (*path).to_owned()).collect::<Vec<_>>());
    }

    #[test]
    fn unpack_writes_all_files_and_can_be_repeated() {
        let cache = tempfile::tempdir().unwrap();
        let dir = cache.path().join("scripts");
        unpack(cache.path(), &dir).unwrap();
        unpack(cache.path(), &dir).unwrap();
        for (path, text) in FILES {
            assert_eq!(std::fs::read_to_string(dir.join(path)).unwrap(), *text, "{path}");
        }
        assert_eq!(std::fs::metadata(dir.join("kube.sh")).unwrap().permissions().mode() & 0o111, 0o111);
        assert_eq!(std::fs::read_dir(cache.path()).unwrap().count(), 1);
    }
}
