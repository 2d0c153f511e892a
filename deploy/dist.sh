#!/usr/bin/env bash
# dist.sh builds the release in dist/: SHA256SUMS, and an archive for each system with the static
# binary, shell completion, man pages, the licence, README.md and CHANGELOG.md. The version is the
# commit's tag, or is derived from the commit.
set -euo pipefail
cd "$(dirname "$0")/.."
systems=${*:-linux/amd64 linux/arm64 darwin/amd64 darwin/arm64 windows/amd64 windows/arm64}
export CGO_ENABLED=0 GOFLAGS='-trimpath -buildvcs=true'
SOURCE_DATE_EPOCH=$(git log -1 --format=%ct)
export SOURCE_DATE_EPOCH

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
go build -o "$work/userdb" ./cmd/userdb
version=$("$work/userdb" version --json | sed 's/.*"version":"\([^"]*\)".*/\1/')
mkdir -p "$work/common/completion" "$work/common/man"
for shell in bash zsh fish powershell; do
	"$work/userdb" completion $shell >"$work/common/completion/userdb.$shell"
done
go test ./cmd/userdb -count=1 -run '^TestManPages$' -args -man "$work/common/man" >"$work/log" || {
	cat "$work/log"
	exit 1
}
cp LICENSE README.md CHANGELOG.md "$work/common"

rm -rf dist
mkdir dist
for system in $systems; do
	os=${system%/*} arch=${system#*/} name="userdb_${version}_${system/\//_}" suffix=
	[ "$os" != windows ] || suffix=.exe
	echo "$name"
	cp -r "$work/common" "$work/$name"
	GOOS=$os GOARCH=$arch go build -ldflags='-s -w' -o "$work/$name/userdb$suffix" ./cmd/userdb
	# The bytes must depend only on the commit: sorted names, the commit's time, no owners.
	tar --sort=name --mtime="@$SOURCE_DATE_EPOCH" --owner=0 --group=0 --numeric-owner -C "$work" -cf - "$name" | gzip -n >"dist/$name.tar.gz"
done
cd dist
sha256sum -- *.tar.gz | tee SHA256SUMS
