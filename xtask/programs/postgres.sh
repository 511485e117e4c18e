# PostgreSQL with a cluster of its own in $TEMPORARY: `postgres.sh prepare` makes the cluster and keeps a copy in this
# directory, `postgres.sh run` takes the copy, starts a server on it, and asks it what sort.sql asks.

# The server refuses to run as root, so root runs it as nobody.
as_plain_user() {
    if [ "$(id -u)" = 0 ]; then
        exec setpriv --reuid=65534 --regid=65534 --clear-groups "$@"
    fi
    exec "$@"
}

cluster=$TEMPORARY/cluster
copy=$PWD/cluster
log=$PWD/server.log

prepare() {
    mkdir "$cluster"
    [ "$(id -u)" != 0 ] || chown 65534:65534 "$cluster"
    # nobody may perhaps not enter this directory.
    (cd "$TEMPORARY" && as_plain_user initdb --no-sync --auth=trust --username=postgres --locale=C --encoding=UTF8 \
        --no-instructions -D "$cluster")
    rm -rf "$copy"
    cp -a "$cluster" "$copy"
}

ask() {
    psql -X -A -t -q -U postgres -h "$cluster" -d postgres -v ON_ERROR_STOP=1 "$@"
}

# All memory is the private one of the process that sorts. A sort that went to a file would need less: it fails.
run() {
    # A server that was killed leaves a cluster that the next one would repair first.
    rm -rf "$cluster" && cp -a "$copy" "$cluster" || return 1
    (cd "$TEMPORARY" && as_plain_user postgres -D "$cluster" -k "$cluster" \
        -c listen_addresses= -c shared_buffers=16MB -c work_mem=900MB -c hash_mem_multiplier=1 -c temp_file_limit=1MB \
        -c fsync=off -c synchronous_commit=off -c full_page_writes=off -c jit=off -c autovacuum=off \
        -c max_connections=10 -c max_wal_senders=0 -c wal_level=minimal -c max_parallel_workers_per_gather=0) \
        >"$log" 2>&1 &
    until ask -c 'SELECT 1'; do sleep 0.05; done >ping.log 2>&1
    ask -f "$SCRIPTS/sort.sql"
    status=$?
    kill -INT "$(head -n 1 "$cluster/postmaster.pid")"
    wait
    return $status
}

"$1"
