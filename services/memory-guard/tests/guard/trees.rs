//! The readers of cgroup files on recorded trees: the files of both versions of cgroups, byte for byte as a kernel wrote them.

use std::path::Path;

use drover_memory_guard::cgroup::{CpuQuota, Hierarchy, NodeMemorySource};

/// Creates a tree from a record with lines `path: content` (the lines of a file are separated by `|`).
fn create_tree(record: &str, root: &Path) {
    for line in record.lines().filter(|line| !line.starts_with('#') && !line.trim().is_empty()) {
        let (path, content) = line.split_once(": ").unwrap();
        let file = root.join(path);
        std::fs::create_dir_all(file.parent().unwrap()).unwrap();
        std::fs::write(file, content.replace('|', "\n") + "\n").unwrap();
    }
}

#[test]
fn cgroup_readers_understand_version_one() {
    let root = tempfile::tempdir().unwrap();
    create_tree(include_str!("trees/v1.txt"), root.path());
    let hierarchy = Hierarchy::detect(root.path()).unwrap();
    assert_eq!(hierarchy.version(), "v1");
    let membership =
        "12:pids:/node/pod1/c1\n9:memory:/node/pod1/c1\n4:freezer:/node/pod1/c1\n3:cpu,cpuacct:/node/pod1/c1\n0::/node/pod1/c1\n";
    let group = hierarchy.group_of(membership).unwrap();
    assert_eq!(group.limit().unwrap(), Some(209_715_200));
    assert_eq!(group.sampler().unwrap().working_set().unwrap(), 10_584_064 - 401_408);
    assert_eq!(group.cpu_quota().unwrap(), CpuQuota { quota: 20_000, period: 100_000 });
    assert_eq!(group.oom_kills().unwrap(), 0);
    assert!(group.high_file().is_none(), "no memory.high on v1");
    assert!(!group.freezer().frozen().unwrap());
    let meminfo = root.path().join("meminfo");
    let node = NodeMemorySource::group(hierarchy.group_at("/node"), &meminfo).unwrap().read().unwrap();
    assert_eq!((node.used, node.capacity), (10_858_496 - 401_408, 536_870_912));
    let machine = NodeMemorySource::machine(&meminfo).unwrap().read().unwrap();
    assert_eq!((machine.used, machine.capacity), ((24_684_084 - 21_724_208) * 1024, 24_684_084 * 1024));
}

#[test]
fn cgroup_readers_understand_version_two() {
    let root = tempfile::tempdir().unwrap();
    create_tree(include_str!("trees/v2.txt"), root.path());
    let hierarchy = Hierarchy::detect(root.path()).unwrap();
    assert_eq!(hierarchy.version(), "v2");
    let group = hierarchy.group_of("0::/node/kubepods/burstable/pod1/c1\n").unwrap();
    assert_eq!(group.limit().unwrap(), Some(268_435_456));
    assert_eq!(group.sampler().unwrap().working_set().unwrap(), 54_239_232);
    assert_eq!(group.cpu_quota().unwrap(), CpuQuota { quota: 50_000, period: 100_000 });
    assert_eq!(group.oom_kills().unwrap(), 0);
    assert!(group.high_file().is_some());
    assert!(!group.freezer().frozen().unwrap());
    group.freezer().freeze().unwrap();
    assert!(group.freezer().frozen().unwrap());
    group.freezer().thaw().unwrap();
    assert!(!group.freezer().frozen().unwrap());
    let other = hierarchy.group_at("/node/kubepods/burstable/pod1/c2");
    assert_eq!(other.limit().unwrap(), None);
    assert_eq!(other.cpu_quota().unwrap(), CpuQuota { quota: -1, period: 100_000 });
    let meminfo = root.path().join("meminfo");
    let node = NodeMemorySource::group(hierarchy.group_at("/node"), &meminfo).unwrap().read().unwrap();
    assert_eq!((node.used, node.capacity), (71_950_336, 536_870_912));
    // A cgroup without a limit has the machine's memory.
    let all = NodeMemorySource::group(hierarchy.group_at("/node/kubepods"), &meminfo).unwrap().read().unwrap();
    assert_eq!(all.capacity, 995_612 * 1024);
    let machine = NodeMemorySource::machine(&meminfo).unwrap().read().unwrap();
    assert_eq!(machine.used, (995_612 - 782_732) * 1024);
}

#[test]
fn detect_refuses_a_directory_that_is_no_cgroup_mount() {
    let root = tempfile::tempdir().unwrap();
    let error = Hierarchy::detect(root.path()).unwrap_err();
    assert!(error.to_string().contains("is it a cgroup mount?"), "{error}");
}
