#!/usr/bin/env bash
# Installs what a target of the Makefile needs and this machine lacks, and says so. Debian and Ubuntu.
#   install.sh build   a C compiler and linker
#   install.sh test    build, PostgreSQL (server binaries), util-linux, Python 3 for the ctypes loader test, the two bookkeeping
#                      programs that add the ledger up, and poppler-utils to read PDFs
set -euo pipefail

say() { printf 'install: %s\n' "$*" >&2; }
fail() { say "$*"; exit 1; }

command -v cargo >/dev/null || fail "cargo not found: install the Rust toolchain (https://rustup.rs), then run make again"

missing=()
need() { # need <package> <test command...>
    local package=$1
    shift
    "$@" >/dev/null 2>&1 || missing+=("$package")
}
has_postgres() { compgen -G '/usr/lib/postgresql/*/bin/initdb' >/dev/null; }
has_libc_headers() { [ -e /usr/include/stdio.h ]; }

case ${1:-build} in
    build | test) ;;
    *) fail "usage: install.sh build|test" ;;
esac
need gcc command -v cc
need libc6-dev has_libc_headers
need util-linux command -v unshare
if [ "${1:-build}" = test ]; then
    need postgresql has_postgres
    need python3 command -v python3
    need hledger command -v hledger
    need beancount command -v bean-check
    need poppler-utils command -v pdftotext
fi

[ ${#missing[@]} -eq 0 ] && exit 0
command -v apt-get >/dev/null || fail "this machine lacks ${missing[*]} and has no apt-get: install them by hand"
root=()
if [ "$(id -u)" -ne 0 ]; then
    command -v sudo >/dev/null || fail "run as root, or install sudo, to install: ${missing[*]}"
    root=(sudo)
fi
say "installing ${missing[*]}"
"${root[@]}" apt-get update -qq || say "apt-get update failed; trying with the lists this machine has"
DEBIAN_FRONTEND=noninteractive "${root[@]}" apt-get install -y -qq --no-install-recommends "${missing[@]}"
