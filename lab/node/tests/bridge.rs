//! The bridge that real nodes share (`deploy/local-kube/node/node.sh`): when it may be removed, and what half of a bridge causes.
//!
//! Each test is a bash script in a network namespace and a mount namespace of its own, which stand for the machine: the machine's real
//! bridge is neither seen nor touched.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::io::Write;
use std::path::Path;
use std::process::Command;

/// What all scripts begin with. `$node` is node.sh, `sees_bridge` fails unless the bridge and the machine's end of it are there.
const PRELUDE: &str = r#"
set -euo pipefail
export DROVER_CACHE=$1/cache
scripts=$2 node=$2/node/node.sh
mount -t tmpfs tmpfs /run
# /sys shows the network namespace that it was mounted in; the cgroups below it stay.
mkdir "$1/cgroup"
mount --rbind /sys/fs/cgroup "$1/cgroup"
mount -t sysfs sysfs /sys
mount --rbind "$1/cgroup" /sys/fs/cgroup
ip link set lo up
trap 'kill $(jobs -p) 2>/dev/null || true' EXIT
sees_bridge() { ip link show drover-root && ip -n drover-lan link show br0; } >/dev/null 2>&1
connects() { (exec 3<>"/dev/tcp/$1/6443") 2>/dev/null; }
until_true() { local _; for _ in $(seq 1000); do ! "$@" || return 0; sleep 0.02; done; echo "never true: $*" >&2; return 1; }
"#;

/// Why the machine cannot run these tests; root, for whom `make test` installs everything, may lack nothing but cgroup v1.
fn missing() -> Option<String> {
    if !Path::new("/sys/fs/cgroup/memory").exists() {
        return Some("cgroup v1 (deploy/local-kube's real nodes need it), which nothing installs".into());
    }
    let dirs = ["/usr/bin", "/usr/sbin", "/bin", "/sbin", "/usr/lib/cni"];
    let there = |program: &&str| dirs.iter().any(|dir| Path::new(dir).join(program).exists());
    let programs = ["containerd", "runc", "ip", "nft", "iptables", "nsenter", "unshare", "sysctl", "bridge", "python3"];
    let mut lacks: Vec<&str> = programs.into_iter().filter(|program| !there(program)).collect();
    let root = nix::unistd::geteuid().is_root();
    if !root {
        lacks.push("root");
    }
    assert!(!root || lacks.is_empty() || std::env::var_os("DROVER_NO_SKIPS").is_none(), "missing: {lacks:?}");
    (!lacks.is_empty()).then(|| lacks.join(", "))
}

fn run(script: &str) {
    if let Some(missing) = missing() {
        let _ = writeln!(std::io::stderr().lock(), "SKIPPED, proves nothing: a test of the bridge of real nodes lacks {missing}");
        return;
    }
    let scripts = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../deploy/local-kube").canonicalize().unwrap();
    let dir = tempfile::tempdir().unwrap();
    let mut command = Command::new("timeout");
    command.args(["60", "unshare", "--net", "--mount", "--propagation", "private", "bash", "-c"]);
    command.arg(format!("{PRELUDE}\n{script}")).arg("bridge").arg(dir.path()).arg(scripts);
    command.env("PATH", format!("{}:/usr/sbin:/sbin", std::env::var("PATH").unwrap_or_default()));
    let output = command.output().unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    assert!(output.status.success(), "{}: {}{}", output.status, text(&output.stdout), text(&output.stderr));
}

#[test]
fn lan_down_removes_a_bridge_that_nobody_uses() {
    run(r#"
        "$node" lan
        sees_bridge || { echo "lan made no bridge" >&2; exit 1; }
        "$node" lan-down
        ! sees_bridge && [ ! -e /run/netns/drover-lan ] || { echo "the bridge is still there" >&2; exit 1; }
    "#);
}

#[test]
fn lan_down_in_another_mount_namespace_leaves_the_bridge() {
    run(r#"
        # A mount namespace from before the bridge: it sees the file below /run/netns, but not the namespace that is mounted on it.
        unshare --mount --propagation private sleep infinity &
        separate() { [ "$(readlink /proc/$!/ns/mnt)" != "$(readlink /proc/$$/ns/mnt)" ]; }
        until_true separate
        "$node" lan
        ip netns add drover-n1
        ip -n drover-lan link add node1 type veth peer name eth0 netns drover-n1
        nsenter --mount="/proc/$!/ns/mnt" "$node" lan-down
        sees_bridge || { echo "the bridge is gone" >&2; exit 1; }
        # Nor is it taken for one that can be used there.
        ! nsenter --mount="/proc/$!/ns/mnt" "$node" lan || { echo "lan used a bridge that it cannot see" >&2; exit 1; }
        sees_bridge || { echo "lan broke the bridge" >&2; exit 1; }
        "$node" lan-down
        sees_bridge || { echo "the bridge is gone, although a node is connected" >&2; exit 1; }
        ip -n drover-lan link del node1
        "$node" lan-down
        ! sees_bridge || { echo "the bridge is still there" >&2; exit 1; }
    "#);
}

#[test]
fn lan_in_a_mount_namespace_with_its_own_run_leaves_the_bridge_of_others() {
    run(r#"
        "$node" lan
        cat >"$1/inside" <<'INSIDE'
            mount -t tmpfs tmpfs /run
            ! "$1" lan || exit 1
            "$1" lan-down
INSIDE
        unshare --mount --propagation private bash "$1/inside" "$node" || { echo "lan joined a bridge that it cannot see" >&2; exit 1; }
        sees_bridge || { echo "the bridge is gone" >&2; exit 1; }
    "#);
}

#[test]
fn lan_down_leaves_the_bridge_to_a_control_plane_of_another_cache() {
    run(r#"
        "$node" lan
        python3 -m http.server --bind 172.31.77.3 6443 >/dev/null 2>&1 &
        until_true connects 172.31.77.3
        DROVER_CACHE=$1/another "$node" lan-down
        sees_bridge || { echo "the bridge is gone, although an API server uses it" >&2; exit 1; }
        kill $!
        wait $! || true
        DROVER_CACHE=$1/another "$node" lan-down
        ! sees_bridge || { echo "the bridge is still there" >&2; exit 1; }
    "#);
}

#[test]
fn address_is_claimed_though_half_a_bridge_and_a_gateway_that_answers_for_everybody_are_there() {
    run(r#"
        ip netns add gateway
        ip link add uplink type veth peer name eth0 netns gateway
        ip addr add 192.0.2.2/24 dev uplink
        ip link set uplink up
        ip -n gateway addr add 192.0.2.1/24 dev eth0
        ip -n gateway link set eth0 up
        ip -n gateway link set lo up
        ip -n gateway route add local 172.31.77.0/24 dev lo
        ip route add default via 192.0.2.1
        nsenter --net=/run/netns/gateway python3 -m http.server 6443 >/dev/null 2>&1 &
        until_true connects 172.31.77.5
        # What a `lan` leaves that was killed before it had set the addresses.
        ip netns add drover-lan
        ip -n drover-lan link add br0 type bridge
        ip link add drover-root type veth peer name root netns drover-lan
        claimed=$(bash -c '. "$0/lib.sh"; claim_address $REAL_NET 1 9 "$1"' "$scripts" "$1/member")
        [ "$claimed" = 172.31.77.1 ] || { echo "claimed $claimed" >&2; exit 1; }
        "$node" lan
        [[ $(ip -n drover-lan -o link show root) == *"master br0"*"state UP"* ]] || { ip -n drover-lan link show >&2; exit 1; }
        [[ $(ip route get 172.31.77.101) == *"dev drover-root"* ]] || { ip route >&2; exit 1; }
        # The claim keeps the bridge.
        "$node" lan-down
        sees_bridge || { echo "the bridge is gone, although a cluster has claimed an address" >&2; exit 1; }
    "#);
}
