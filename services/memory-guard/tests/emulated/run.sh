#!/usr/bin/env bash
# run.sh COMMAND...
#
# Runs a command as root on an emulated machine (QEMU without KVM) with Debian's kernel, cgroup v2 only, and this machine's files. They are
# shared read-only; what the command writes is discarded. Exits with the command's exit code. Slow: a boot takes about half a minute.
#   run.sh $CARGO_TARGET_DIR/debug/deps/guard-HASH --include-ignored leases:: trees::     in services/memory-guard, after a build
# Needs qemu-system-x86 and busybox-static; the kernel is fetched by apt once and kept in $DROVER_CACHE, not installed.
set -euo pipefail
HERE=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
: "${DROVER_CACHE:=$HOME/.cache/drover}" "${MEMORY:=3072}"
die() { echo "emulated: $*" >&2; exit 1; }
[ $# -gt 0 ] || die "usage: run.sh COMMAND..."
command -v qemu-system-x86_64 >/dev/null || die "missing: apt-get install -y --no-install-recommends qemu-system-x86"
[ -x /bin/busybox ] || die "missing: apt-get install -y busybox-static"

package=$(apt-cache depends linux-image-amd64 | awk '/Depends: linux-image/ {print $2; exit}')
kernel=$DROVER_CACHE/$package
if [ ! -d "$kernel" ]; then
  rm -rf "$kernel.partial"
  mkdir -p "$kernel.partial"
  (cd "$kernel.partial" && apt-get download "$package" >&2 && dpkg -x ./*.deb . && rm ./*.deb)
  mv "$kernel.partial" "$kernel"
fi
version=${package#linux-image-}

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir -p "$work/root"/{bin,modules}
cp /bin/busybox "$work/root/bin/"
cp "$HERE/init" "$work/root/init"
# Loaded in this order.
n=10
for module in virtio virtio_ring virtio_pci_legacy_dev virtio_pci_modern_dev virtio_pci fscache netfs 9pnet 9pnet_virtio 9p overlay; do
  file=$(find "$kernel/lib/modules" -name "$module.ko*" | head -n 1)
  [ -z "$file" ] || cp "$file" "$work/root/modules/$((n++))-$module.ko"
done
printf '%q ' "$@" >"$work/root/command"
{ pwd; env | grep -E '^(PATH|HOME|DROVER_|CARGO_TARGET_DIR|RUST_BACKTRACE)' | sed "s/=\(.*\)/='\1'/; s/^/export /"; } >"$work/root/place"
(cd "$work/root" && find . | /bin/busybox cpio -o -H newc 2>/dev/null | gzip -1) >"$work/initrd"
qemu-system-x86_64 -machine pc -accel tcg,thread=multi -cpu max -smp 2 -m "$MEMORY" -nographic -no-reboot -net none \
  -kernel "$kernel/boot/vmlinuz-$version" -initrd "$work/initrd" -append "console=ttyS0 cgroup_no_v1=all psi=1 panic=-1 no_timer_check nowatchdog quiet" \
  -virtfs local,path=/,mount_tag=host,security_model=none,readonly=on,multidevs=remap </dev/null | tee "$work/console"
code=$(sed -n 's/^emulated: exit \([0-9]*\).*/\1/p' "$work/console" | tail -n 1)
exit "${code:-1}"
