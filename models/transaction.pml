/* transaction.pml - taking a lock by WATCH, MULTI and EXEC, beside a client that uses scripts.
 *
 * Two clients make one attempt each, the first of them with a second try. An EXEC may stay on the wire as long as it likes, also when its
 * client has given the connection up and sent another one. A third client takes the lock by scripts,
 * which are one step. Each change of a key raises its revision: that is what WATCH compares. The
 * lock ends by its ttl whenever its holder does not believe in it.
 */
#ifndef WITHOUT
#define WITHOUT 0 /* spin -DWITHOUT=WATCH_LOCK ... takes that rule away */
#endif
#define HAS(guard) (guard != WITHOUT)
#define WATCH_LOCK 1   /* the lock is watched */
#define WATCH_TOMBS 2  /* so are its tombstones */
#define WATCH_FIRST 3  /* the number is taken after that */
#define CANCEL_DOUBT 4 /* an attempt of which a sending got no answer is cancelled when given up */

#define CLIENTS 2
#define SCRIPTED 3 /* the one that uses scripts */
#define TRIES(me) (3 - me)

typedef Exec {
    bool under_way;
    byte number, lock_seen, tombs_seen; /* as they were when they were watched */
    byte result; /* 0 none yet, 1 done, 2 somebody was faster */
};

Exec exec[3]; /* two of the first client, one of the second */
byte lock;          /* who has it; 0: free */
byte lock_rev, tombs_rev;
byte counter;
byte newest;        /* the largest number that was granted */
bool tomb[4];
bool over[4];       /* this attempt is given up or released: nothing may be granted to it any more */
bool believes[4];
byte endings = 1;   /* of the lock by its ttl, left */

inline set_lock(who) {
    lock = who;
    lock_rev++
}

inline granted(who, n) {
    assert(!over[who]);   /* P8: not for nobody */
    assert(n > newest);   /* P4 */
    newest = n;
    set_lock(who)
}

/* ---- a client without scripts ---- */

inline cancel() {
    d_step {
        if
        :: lock == me -> set_lock(0)
        :: else
        fi;
        tomb[me] = true;
        tombs_rev++
    }
}

inline take_number() {
    d_step { counter++; number = counter }
}

active [CLIENTS] proctype client() {
    byte me = _pid + 1, tries = 0, number, seen, at;
    byte lock_seen, tombs_seen;
    bool doubt = false;
again:
    if
    :: tries == TRIES(me) -> goto give_up
    :: else -> tries++
    fi;
    if
    :: HAS(WATCH_FIRST)
    :: else -> take_number()
    fi;
    d_step { lock_seen = lock_rev; tombs_seen = tombs_rev };
    d_step { seen = lock };
    if
    :: seen == me -> goto hold /* what an earlier sending did */
    :: seen && seen != me -> goto again_or_not
    :: !seen
    fi;
    if
    :: HAS(WATCH_FIRST) -> take_number()
    :: else
    fi;
    d_step {
        at = (me - 1) * 2 + tries - 1;
        exec[at].number = number;
        exec[at].lock_seen = lock_seen;
        exec[at].tombs_seen = tombs_seen;
        exec[at].under_way = true;
        number = 0; lock_seen = 0; tombs_seen = 0; seen = 0
    };
    if
    :: exec[at].result == 1 -> goto hold
    :: exec[at].result == 2 -> goto again
    :: doubt = true; goto again_or_not /* the reply is lost, or late */
    fi;
again_or_not:
    if
    :: goto again
    :: goto give_up
    fi;
hold: skip;
    d_step { /* a grant whose lease was over before we knew is none */
        if
        :: lock == me -> believes[me] = true
        :: else
        fi
    };
    if
    :: !believes[me] -> goto give_up
    :: else
    fi;
    assert(believes[1] + believes[2] + believes[SCRIPTED] == 1); /* P1 */
    believes[me] = false;
    if
    :: doubt && HAS(CANCEL_DOUBT) -> cancel()
    :: else -> d_step {
            if
            :: lock == me -> set_lock(0)
            :: else
            fi
        }
    fi;
    goto done;
give_up:
    if
    :: doubt && HAS(CANCEL_DOUBT) -> cancel()
    :: else
    fi;
done:
    over[me] = true;
    assert(!doubt || lock != me) /* P8: nor does it stay with nobody */
}

/* ---- the server ---- */

#define LOCK_SAME(i) (exec[i].lock_seen == lock_rev || !HAS(WATCH_LOCK))
#define TOMBS_SAME(i) (exec[i].tombs_seen == tombs_rev || !HAS(WATCH_TOMBS))
#define ARRIVES(i) d_step { exec[i].under_way -> \
        exec[i].under_way = false; \
        who = i / 2 + 1; \
        given = exec[i].number; \
        exec[i].number = 0; \
        if \
        :: (LOCK_SAME(i) && TOMBS_SAME(i)) -> granted(who, given); exec[i].result = 1 \
        :: else -> exec[i].result = 2 \
        fi; \
        exec[i].lock_seen = 0; exec[i].tombs_seen = 0; who = 0; given = 0 }

active proctype server() {
    byte who, given;
    do
    :: ARRIVES(0)
    :: ARRIVES(1)
    :: ARRIVES(2)
    :: d_step { endings && lock && !believes[lock] -> endings--; set_lock(0) }
    :: timeout -> break
    od
}

/* ---- a client with scripts ---- */

active proctype scripted() {
    byte rounds = 0;
    do
    :: rounds < 1 && !lock ->
        d_step {
            if
            :: !lock ->
                counter++;
                granted(SCRIPTED, counter);
                believes[SCRIPTED] = true
            :: else
            fi
        };
        if
        :: believes[SCRIPTED] ->
            assert(believes[1] + believes[2] + believes[SCRIPTED] == 1); /* P1 */
            d_step {
                believes[SCRIPTED] = false;
                if
                :: lock == SCRIPTED -> set_lock(0)
                :: else
                fi
            }
        :: else
        fi;
        rounds++
    :: rounds == 1 -> break
    od
}
