/* fence.pml - the fencing counter never goes back (rules C1 to C4).
 *
 * Two servers: 0 serves first, 1 is its replica. `kept` is what would survive now: the replica's
 * copy, or what is on disk. Time is counted in units, and at most one number is given per unit:
 * time runs faster than grants. AHEAD stands for 60 s, MARGIN for 1 000 000 numbers.
 *
 * A guard is a rule that can be taken away: -DNO_SEED_AHEAD builds the model without SEED_AHEAD.
 *   SEED_AHEAD    C2  a missing counter begins at time + 60 s, not at time
 *   FLOOR_CHECK   C1  a counter below the floor counts as missing
 *   REIGN_RAISE   C3  a new reign raises the counter at all
 *   REIGN_MARGIN  C3  ... past a million numbers that it may have lost
 *   REIGN_TIME    C3  ... and at least to the time
 *   RAISE_CAP     C4  ... but not above time + 60 s
 *   NEVER_LOWER   C4  ... and never down, whatever the clock says
 *   ONE_RAISE     C4  a new connection in the same reign raises nothing
 *
 * ASSUMED: what is lost when a server dies is less than MARGIN numbers (or the counter is behind
 * the time anyhow), and no seed or raise is among it. -DLOSE_RAISES drops the second half: a seed
 * or raise may be lost too. Then the rules fail; -DREIGN_AHEAD, a new reign begins at time + 60 s
 * just as a missing counter does, holds.
 */
#ifdef LOSE_RAISES
#define RAISE_KEPT true
#else
#define RAISE_KEPT kept_raise
#endif
#define AHEAD 5
#define MARGIN 3
#define FLOOR 6
#define START 8
#define END 22
#define DEPOSED_GRANTS 2
#define max(a, b) ((a) > (b) -> (a) : (b))
#define min(a, b) ((a) < (b) -> (a) : (b))

byte now = START;       /* the servers' clock */
byte counter[2];        /* 0 = missing */
bool reign_known[2];    /* the stored reign is the present one */
bool given_now[2];      /* a number was given in this unit of time */
byte kept;              /* the counter that survives a loss */
bool kept_raise = true; /* the last seed or raise is in it */
byte unkept;            /* numbers given since */
byte highest;           /* the largest number that a resource has seen */
bit serving;            /* the master that clients are sent to */
byte lingering;         /* numbers that the deposed master may still give */
byte restarts = 2, flushes = 1, failovers = 1, steps_back = 1; /* faults left */

inline seed(s) {
#ifdef NO_SEED_AHEAD
    counter[s] = now;
#else
    counter[s] = now + AHEAD;
#endif
    kept_raise = kept_raise && s != serving
}

#ifdef NO_FLOOR_CHECK
#define MISSING(s) (counter[s] == 0)
#else
#define MISSING(s) (counter[s] < FLOOR)
#endif

#ifdef NO_REIGN_MARGIN
#define PAST_LOST(s) counter[s]
#else
#define PAST_LOST(s) (counter[s] + MARGIN)
#endif
#ifdef NO_REIGN_TIME
#define WANTED(s) PAST_LOST(s)
#else
#define WANTED(s) max(PAST_LOST(s), now)
#endif
#ifdef NO_RAISE_CAP
#define CAPPED(s) WANTED(s)
#else
#define CAPPED(s) min(WANTED(s), now + AHEAD)
#endif

inline new_reign(s) { /* the reign stored is another one: this server died, or was a replica */
#if defined(REIGN_AHEAD)
    counter[s] = max(counter[s], now + AHEAD);
#elif defined(NO_REIGN_RAISE)
    skip;
#elif defined(NO_NEVER_LOWER)
    counter[s] = CAPPED(s);
#else
    counter[s] = max(counter[s], CAPPED(s));
#endif
    kept_raise = kept_raise && s != serving
}

inline hello(s) { /* the first script on a connection */
    if
    :: MISSING(s) -> seed(s)
    :: !MISSING(s) && !reign_known[s] -> new_reign(s)
    :: else ->
#ifdef NO_ONE_RAISE
        if
        :: counter[s] < now + AHEAD -> counter[s] = now + AHEAD
        :: else
        fi
#else
        skip
#endif
    fi;
    reign_known[s] = true
}

inline grant(s) { /* acquire: INCR, and a seed if that shows that the counter was gone */
    if
    :: MISSING(s) -> seed(s)
    :: else
    fi;
    counter[s]++;
    given_now[s] = true
}

inline pass_time() {
    now++;
    given_now[0] = false;
    given_now[1] = false
}

/* A clock that was set back *and* a loss are outside the promise (C5). */
#define CLOCK_OK (steps_back == 1)
#define LOSS_OK (CLOCK_OK && RAISE_KEPT && (unkept < MARGIN || highest < now))
/* The new master cannot know what the old one still gives: all that is unknown to it together
 * must fit into the margin, and below the cap. */
#define LINGER_OK (counter[0] != 0 && counter[0] + DEPOSED_GRANTS <= now + AHEAD && \
    (unkept + DEPOSED_GRANTS <= MARGIN || counter[0] + DEPOSED_GRANTS <= now))

inline lose_tail(s) {
    counter[s] = kept;
    kept_raise = true;
    unkept = 0
}

active proctype clients_of_serving_master() {
    do
    :: d_step { hello(serving) }
    :: d_step {
        reign_known[serving] && !given_now[serving] && now < END ->
        grant(serving);
        unkept++;
        assert(counter[serving] > highest); /* P4 */
        highest = counter[serving]
    }
    od
}

/* Its numbers count where a resource sees them first; smaller ones are refused there. That it
 * overtakes the new master shows at the next grant above. */
active proctype clients_of_deposed_master() {
    do
    :: d_step { serving == 1 -> hello(0) }
    :: d_step {
        lingering > 0 && !given_now[0] ->
        lingering--;
        grant(0);
        highest = max(highest, counter[0])
    }
    od
}

active proctype time_and_faults() {
    do
    :: d_step { now < END -> pass_time() }
    :: d_step { kept = counter[serving]; kept_raise = true; unkept = 0 } /* saved, replicated */
    :: d_step { /* FLUSHALL */
        flushes > 0 && CLOCK_OK && now < END ->
        flushes--;
        pass_time();
        counter[serving] = 0;
        reign_known[serving] = false;
        kept_raise = false
    }
    :: d_step { counter[serving] == 0 && flushes == 0 -> counter[serving] = 1 } /* bare INCR */
    :: d_step { /* restart, all kept */
        restarts > 0 && now < END ->
        restarts--;
        pass_time();
        reign_known[serving] = false
    }
    :: d_step { /* restart, the tail lost */
        restarts > 0 && LOSS_OK && now < END ->
        restarts--;
        pass_time();
        reign_known[serving] = false;
        lose_tail(serving)
    }
    :: d_step { /* failover to the lagging replica; the old master may linger */
        failovers > 0 && LOSS_OK && now < END ->
        failovers--;
        pass_time();
        lingering = (LINGER_OK -> DEPOSED_GRANTS : 0);
        serving = 1;
        lose_tail(1)
    }
    :: d_step { steps_back > 0 && now > START + 2 -> steps_back--; now = now - 2 }
    od
}
