#!/bin/sh
# SPDX-License-Identifier: MIT
# leader_pg.sh - one leader at a time writes to PostgreSQL, and a former leader cannot.
#
#   leader_pg.sh init                 make the table
#   leader_pg.sh lead [SECONDS]       wait to be leader, then write once a second
#   leader_pg.sh write FENCE TEXT     one write under that number; exit 3 if it is refused
#   leader_pg.sh show
#
# psql(1) finds the database by PGHOST, PGDATABASE and so on. Every write carries the fencing number
# of the lock, and the statement that writes refuses a number smaller than the table has seen.
# docs/fencing.md explains why the lock alone is not enough.
set -eu

sql() {
    psql -XqAt -v ON_ERROR_STOP=1 "$@"
}

case ${1:-} in
    init)
        sql << 'END'
CREATE TABLE IF NOT EXISTS leader_state (
    one   boolean PRIMARY KEY DEFAULT true CHECK (one),
    text  text    NOT NULL,
    fence bigint  NOT NULL
);
END
        ;;
    write)
        written=$(sql -v fence="$2" -v text="$3" << 'END'
INSERT INTO leader_state AS s (text, fence) VALUES (:'text', :fence)
ON CONFLICT (one) DO UPDATE SET text = EXCLUDED.text, fence = EXCLUDED.fence
    WHERE s.fence <= EXCLUDED.fence
RETURNING fence;
END
        )
        [ -n "$written" ] || {
            echo "refused: number $2 is not the leader's any more" >&2
            exit 3
        }
        ;;
    lead)
        # run stops us before the lock can pass to another leader; the number helps if it cannot.
        exec holdfast run --ttl 10s --grace 2s leader -- "$0" --leading "${2:-1000000}"
        ;;
    --leading)
        echo "process $$ leads under number $HOLDFAST_FENCE"
        i=0
        while [ "$i" -lt "$2" ]; do
            i=$((i + 1))
            "$0" write "$HOLDFAST_FENCE" "process $$, beat $i"
            sleep 1
        done
        ;;
    show)
        sql -c 'SELECT fence, text FROM leader_state'
        ;;
    *)
        echo "usage: leader_pg.sh init | lead [SECONDS] | write FENCE TEXT | show" >&2
        exit 64
        ;;
esac
