#!/usr/bin/env bash
# Run h2spec (https://github.com/summerwind/h2spec) against our gRPC port, with the headers of gRPC requests: h2spec's own are
# those of a browser, which a gRPC server need not take. Debian's Go packages build it: the module proxy is not needed.
#
#   apt install golang-go golang-golang-x-net-dev golang-github-spf13-cobra-dev golang-github-fatih-color-dev
#   make h2spec
#
# H2SPEC_GIT is where it is cloned from instead of GitHub.
set -euo pipefail
cd "$(dirname "$0")/../.."
version=v2.6.0
work=.cache/h2spec
command -v go >/dev/null || { echo "h2spec: install golang-go and the packages named in $0" >&2; exit 2; }

if [ ! -x "$work/h2spec" ]; then
  source="$work/go/src/github.com/summerwind/h2spec"
  rm -rf "$work"
  mkdir -p "$work/go/src"
  cp -r /usr/share/gocode/src/. "$work/go/src/"
  git clone --quiet --branch "$version" --depth 1 "${H2SPEC_GIT:-https://github.com/summerwind/h2spec}" "$source" ||
    { echo "h2spec: cannot be cloned; without the network set H2SPEC_GIT" >&2; exit 2; }
  sed -i -e '/^func CommonHeaders/,/^}/ s|HeaderField(":method", "GET"),|HeaderField(":method", "POST"),|' \
    -e '/^func CommonHeaders/,/^}/ s|^\(\t\tHeaderField(":authority", authority),\)|\1\n\t\tHeaderField("content-type", "application/grpc"),\n\t\tHeaderField("te", "trailers"),|' \
    "$source/spec/util.go"
  grep -q application/grpc "$source/spec/util.go" || { echo "h2spec: its headers are not where $0 expects them" >&2; exit 2; }
  (cd "$source" && GO111MODULE=off GOPATH="$OLDPWD/$work/go" GOFLAGS=-buildvcs=false go build -o "$OLDPWD/$work/h2spec" ./cmd/h2spec)
fi

exec 3< <(exec .venv/bin/policybridge serve --demo --grpc 127.0.0.1:0)
server=$!
trap 'kill $server' EXIT
read -r _ address <&3
"$work/h2spec" --host 127.0.0.1 --port "${address##*:}" --path /policybridge.v1.PolicyService/Evaluate --timeout 2 "$@"
