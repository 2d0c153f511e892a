#!/usr/bin/env bash
# image.sh builds the image localhost/userdb with the program given as an argument. Without one, it
# uses docker if its server answers, or else podman or buildah: 'docker compose' finds only images
# that docker has.
set -euo pipefail
cd "$(dirname "$0")/.."
certificates=${SSL_CERT_FILE:-/etc/ssl/certs/ca-certificates.crt}
builder=${1:-}
if [ -z "$builder" ] && docker version >/dev/null 2>&1; then
	builder=docker
fi
builder=${builder:-$(command -v podman || command -v buildah || true)}
if [ -z "$builder" ]; then
	echo 'image.sh: docker does not answer, and neither podman nor buildah is installed' >&2
	exit 1
fi
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
CGO_ENABLED=0 GOOS=linux go build -trimpath -buildvcs=auto -ldflags='-s -w' -o "$work/userdb" ./cmd/userdb
cp "$certificates" "$work/ca-certificates.crt"
mkdir -m 1777 "$work/tmp"
"$builder" build ${BUILD_OPTIONS:-} -t localhost/userdb:latest -f deploy/Containerfile "$work"
