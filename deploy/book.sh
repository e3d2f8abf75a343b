#!/usr/bin/env bash
# book.sh [DIRECTORY]: builds the docs site with mdBook and prints the path of its first page. DIRECTORY is replaced; by default it is
# $DROVER_CACHE/book. The first run builds a pinned mdBook into $DROVER_CACHE/tools, which takes some minutes; later runs take seconds.
#
# Pages have the same place in the book as in the repository, so a link between them is right in both. docs/SUMMARY.md gives their order.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
: "${DROVER_CACHE:=$HOME/.cache/drover}"
PATH=$PATH:$HOME/.cargo/bin
VERSION=0.5.4 SHA256=5f68ffebcd0b9a4eb72aaacc4342bc94e1d63c01893b7c921437f6ef02443699
tools=$DROVER_CACHE/tools/mdbook-$VERSION
out=$(realpath -m "${1:-$DROVER_CACHE/book}")

if [ ! -x "$tools/bin/mdbook" ]; then
  mkdir -p "$DROVER_CACHE/tools"
  (
    # The lock keeps two runs from building it twice.
    flock 9
    [ ! -x "$tools/bin/mdbook" ] || exit 0
    echo "building mdBook $VERSION into $tools (once, some minutes)" >&2
    rm -rf "$tools.partial"
    CARGO_TARGET_DIR=$tools.partial/build cargo install --quiet --locked --no-default-features --features search --root "$tools.partial" "mdbook@$VERSION"
    # The archive's Cargo.lock has the checksums of everything that it is built from.
    find "${CARGO_HOME:-$HOME/.cargo}/registry/cache" -name "mdbook-$VERSION.crate" -exec sha256sum {} + | grep -q "^$SHA256 " ||
      { echo "book.sh: mdbook-$VERSION.crate is another one than expected" >&2; exit 1; }
    rm -rf "$tools.partial/build"
    mv "$tools.partial" "$tools"
  ) 9>"$DROVER_CACHE/tools/.lock"
fi

stage=$(mktemp -d)
trap 'rm -rf "$stage"' EXIT
mkdir "$stage/src"
cat >"$stage/book.toml" <<'END'
[book]
title = "Drover"
language = "en"
[output.html]
input-404 = ""
no-section-label = true
smart-punctuation = false
fold = { enable = true, level = 0 }
print = { enable = false }
redirect = { "/docs/SUMMARY.html" = "../index.html" } # the contents are beside every page
END
# Links in the contents are relative to docs/, those in the book's copy to its root.
sed -E 's#\]\(#](docs/#; s#\]\(docs/\.\./#](#' docs/SUMMARY.md >"$stage/src/SUMMARY.md"
grep -oP '\]\(\K[^)]+' "$stage/src/SUMMARY.md" | while read -r page; do
  cp --parents "$page" "$stage/src"
  # Files that are no pages but are linked.
  { grep -oP '\]\(\K[^)#]+' "$page" || true; } | while read -r link; do
    file=$(realpath -m --relative-to=. "$(dirname "$page")/$link")
    [[ $link == *://* || $link == *.md || ! -f $file ]] || cp --parents "$file" "$stage/src"
  done
done
# mdBook makes an index.html of a README.md, but leaves links to it as they are.
find "$stage/src" -name README.md -execdir mv {} index.md \;
find "$stage/src" -name '*.md' -exec sed -Ei 's#(\]\([^):]*)README\.md#\1index.md#g' {} +
MDBOOK_LOG=warn "$tools/bin/mdbook" build "$stage"
rm -rf "$out"
mkdir -p "$(dirname "$out")"
mv "$stage/book" "$out"
echo "$out/index.html"
