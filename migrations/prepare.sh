#!/bin/sh
# Checks every query against a real SQLite and a real PostgreSQL and renews the offline data (.sqlx) of both engine crates.
#   migrations/prepare.sh          renew
#   migrations/prepare.sh --check  fail if the committed data is not what a renewal gives
# Needs PostgreSQL's server programs (Debian: postgresql) and sqlite3's library only; starts its own server and removes it.
set -eu
root=$(cd "$(dirname "$0")/.." && pwd)
check=${1:-}
work=$(mktemp -d)
server=
stop() {
    [ -z "$server" ] || kill -INT "$server" 2>/dev/null || true
    [ -z "$server" ] || wait "$server" 2>/dev/null || true
    rm -rf "$work"
}
trap stop EXIT INT TERM

bin=$(ls -d /usr/lib/postgresql/*/bin 2>/dev/null | sort -V | tail -1 || true)
[ -n "$bin" ] || bin=$(dirname "$(command -v initdb || echo /nonexistent/initdb)")
[ -x "$bin/initdb" ] || { echo "prepare: no PostgreSQL server found; install Debian package postgresql" >&2; exit 1; }
# PostgreSQL refuses to run as root.
as=
if [ "$(id -u)" = 0 ]; then
    chown postgres "$work"
    as="setpriv --reuid=postgres --regid=postgres --init-groups"
fi
chmod 755 "$work"
$as "$bin/initdb" -D "$work/pg" -A trust -U postgres -E UTF8 --locale=C >"$work/initdb.log" 2>&1 || { cat "$work/initdb.log" >&2; exit 1; }
port=$(python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])')
$as "$bin/postgres" -D "$work/pg" -p "$port" -c listen_addresses=127.0.0.1 -c "unix_socket_directories=$work" \
    -c fsync=off >"$work/pg.log" 2>&1 &
server=$!
psql="$bin/psql -X -q -v ON_ERROR_STOP=1 -h $work -p $port -U postgres"
tries=0
until $psql -c 'SELECT 1' >/dev/null 2>&1; do
    tries=$((tries + 1))
    [ "$tries" -le 300 ] || { cat "$work/pg.log" >&2; exit 1; }
    sleep 0.1
done
[ "$($psql -At -c 'SHOW data_directory')" = "$work/pg" ] || { echo "prepare: another server answers" >&2; exit 1; }

# Both engines get the same migrations in the same order; the programs below only feed SQL text.
apply() { # engine
    for file in $(for f in "$root"/migrations/[0-9]*.sql "$root/migrations/$1"/extra/[0-9]*.sql; do
        [ -e "$f" ] && echo "$(basename "$f") $f"
    done | sort | cut -d' ' -f2); do
        case $1 in
        postgres) $psql -1 -f "$file" >/dev/null ;;
        sqlite) python3 -c 'import sqlite3, sys; c = sqlite3.connect(sys.argv[1]); c.executescript(open(sys.argv[2]).read())' "$work/tarn.db" "$file" ;;
        esac
    done
}
apply postgres
apply sqlite

renew() { # engine, variable, url
    mkdir -p "$work/$1.sqlx"
    touch "$root/migrations/$1/src/lib.rs" # query! asks the database only when the crate is compiled
    (cd "$root" && env -u SQLX_OFFLINE "$2=$3" SQLX_OFFLINE_DIR="$work/$1.sqlx" cargo check -q -p "tarn-store-$1")
}
renew sqlite SQLITE_DATABASE_URL "sqlite://$work/tarn.db"
renew postgres PG_DATABASE_URL "postgres://postgres@127.0.0.1:$port/postgres"
for engine in sqlite postgres; do
    if [ "$check" = --check ]; then
        diff -r "$work/$engine.sqlx" "$root/migrations/$engine/.sqlx" ||
            { echo "prepare: the offline data of $engine is stale; run migrations/prepare.sh" >&2; exit 1; }
    else
        rm -rf "$root/migrations/$engine/.sqlx"
        cp -r "$work/$engine.sqlx" "$root/migrations/$engine/.sqlx"
        chmod 755 "$root/migrations/$engine/.sqlx"
    fi
    echo "prepare: $engine, $(ls "$work/$engine.sqlx" | wc -l) queries"
done
