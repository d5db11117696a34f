#!/bin/sh
# Start a Dask scheduler on the first of several hosts and workers on all of them, until Ctrl-C:
#
#     ./start.sh 10.0.0.1 10.0.0.2 10.0.0.3
#
# Give each host by the address at which the others reach it: workers listen there only. Anyone who
# reaches the scheduler's port can run code on all hosts, so use a network that you trust.
#
#     RSH       how commands are run on a host, by default `ssh -tt`; empty: all on this one
#     WORKERS   workers per host, by default 1 (a worker uses one thread of each core given to it)
#     PORT      of the scheduler, by default 8786
#     PYTHON    interpreter with bayestree[cluster], at the same path on all hosts
#
# Then, on a machine that reaches the first host:
#
#     bayestree run run.toml --set cluster.scheduler=tcp://10.0.0.1:8786
set -eu
[ $# -gt 0 ] || { sed -n 's/^# \{0,1\}//p' "$0"; exit 2; }
RSH=${RSH-ssh -tt} PORT=${PORT:-8786} PYTHON=${PYTHON:-python}
scheduler=tcp://$1:$PORT

on() {
    host=$1
    shift
    ${RSH:+$RSH "$host"} env OMP_NUM_THREADS="${OMP_NUM_THREADS:-1}" "$@" &
    started="${started-} $!"
}

stop() {
    trap - INT TERM EXIT
    kill $started 2>/dev/null || true # the scheduler goes first, and workers leave with it
    wait
}
trap stop INT TERM EXIT

on "$1" "$PYTHON" -m dask scheduler --host "$1" --port "$PORT" --no-dashboard
for host; do
    on "$host" "$PYTHON" -m dask worker "$scheduler" --host "$host" --nworkers "${WORKERS:-1}" \
        --nthreads 1 --death-timeout 60 --local-directory /var/tmp --no-dashboard
done
wait
