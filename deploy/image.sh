#!/usr/bin/env bash
# image.sh builds the image localhost/userdb with the program given as an argument, or with the
# first of buildah, podman and docker that is installed.
set -euo pipefail
cd "$(dirname "$0")/.."
certificates=${SSL_CERT_FILE:-/etc/ssl/certs/ca-certificates.crt}
builder=${1:-$(command -v buildah || command -v podman || command -v docker || true)}
if [ -z "$builder" ]; then
	echo 'image.sh: found none of buildah, podman and docker' >&2
	exit 1
fi
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
CGO_ENABLED=0 GOOS=linux go build -trimpath -buildvcs=auto -ldflags='-s -w' -o "$work/userdb" ./cmd/userdb
cp "$certificates" "$work/ca-certificates.crt"
mkdir -m 1777 "$work/tmp"
"$builder" build ${BUILD_OPTIONS:-} -t localhost/userdb:latest -f deploy/Containerfile "$work"
