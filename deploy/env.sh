# Sourced by the Makefile and the scripts, from the top of the checkout: sets the directories for builds and caches.
: "${DROVER_CACHE:=$HOME/.cache/drover}"
: "${CARGO_TARGET_DIR:=$DROVER_CACHE/target-$({ cat rust-toolchain.toml; grep -E '^(name|version|checksum)' Cargo.lock; } | sha256sum | cut -c1-12)}"
PATH=$PATH:$HOME/.cargo/bin:/usr/local/go/bin
export DROVER_CACHE CARGO_TARGET_DIR PATH

# Programs contain the path of the checkout that built them, and cargo does not notice that this is another checkout.
if [ "$(cat "$CARGO_TARGET_DIR/checkout" 2>/dev/null)" != "$PWD" ]; then
  find libs services lab tests xtask -name '*.rs' -exec touch {} +
  rm -rf "$CARGO_TARGET_DIR"/*/incremental # of no use in another checkout, and as large as the rest
  mkdir -p "$CARGO_TARGET_DIR"
  echo "$PWD" >"$CARGO_TARGET_DIR/checkout"
fi

# A machine that cannot download the pinned toolchain may have the same compiler under another name ("stable").
if [ -z "${RUSTUP_TOOLCHAIN:-}" ] && command -v rustup >/dev/null && ! cargo --version >/dev/null 2>&1; then
  pinned=$(sed -n 's/^channel = "\(.*\)"/\1/p' rust-toolchain.toml)
  for toolchain in $(rustup toolchain list | cut -d' ' -f1); do
    case $(rustc "+$toolchain" --version) in "rustc $pinned "*) export RUSTUP_TOOLCHAIN=$toolchain ;; esac
  done
fi
