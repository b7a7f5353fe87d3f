/* fence.pml - the fencing counter never goes back (rules C1 to C4).
 *
 * Two servers: 0 serves first, 1 is its replica. `kept` is what would survive now: the replica's
 * copy, or what is on disk. Time is counted in units and at most one number is given in each:
 * time runs faster than grants. AHEAD stands for 60 s.
 *
 * With a server any number of numbers may be lost, and seeds and lifts of the counter too.
 */
#ifndef WITHOUT
#define WITHOUT 0 /* spin -DWITHOUT=SEED_AHEAD ... takes that rule away */
#endif
#define HAS(guard) (guard != WITHOUT)
#define SEED_AHEAD 1  /* C2 a missing counter begins at time + 60 s, not at the time */
#define FLOOR_CHECK 2 /* C1 a counter below the floor counts as missing */
#define REIGN_RAISE 3 /* C3 a new reign raises the counter at all ... */
#define REIGN_AHEAD 4 /* C3 ... to time + 60 s, not to the time */
#define NEVER_LOWER 5 /* C4 ... and never down, whatever the clock says */
#define ONE_RAISE 6   /* C4 a new connection in the same reign raises nothing */

#define AHEAD 5
#define FLOOR 6
#define START 8
#define END 18
#define DEPOSED_GRANTS 2
#define max(a, b) ((a) > (b) -> (a) : (b))
#define when(condition, action) if :: (condition) -> action :: else fi

byte now = START;       /* the servers' clock */
byte counter[2];        /* 0 = missing */
bool reign_known[2];    /* the stored reign is the present one */
bool greeted[2];        /* clients have said hello since it became master or started */
bool given_now[2];      /* a number was given in this unit of time */
byte kept;              /* the counter that survives a loss */
byte highest;           /* the largest number that a resource has seen */
bit serving;            /* the master that clients are sent to */
byte lingering;         /* numbers that the deposed master may still give */
byte restarts = 2, flushes = 1, failovers = 1, steps_back = 1; /* faults left */

/* ---- scripts ---- */

#define MISSING(s) (counter[s] < (HAS(FLOOR_CHECK) -> FLOOR : 1))
#define AT_FIRST (HAS(REIGN_AHEAD) -> now + AHEAD : now)
#define REIGN_BEGINS(s) (HAS(NEVER_LOWER) -> max(counter[s], AT_FIRST) : AT_FIRST)

inline seed(s) {
    counter[s] = (HAS(SEED_AHEAD) -> now + AHEAD : now)
}

inline hello(s) { /* the first script on a connection */
    if
    :: !reign_known[s] -> when(HAS(REIGN_RAISE), counter[s] = REIGN_BEGINS(s))
    :: else -> when(!HAS(ONE_RAISE), counter[s] = max(counter[s], now + AHEAD))
    fi;
    reign_known[s] = true;
    greeted[s] = true
}

inline grant(s) { /* acquire: INCR, and a seed if that shows that the counter was gone */
    when(MISSING(s), seed(s));
    counter[s]++;
    given_now[s] = true
}

/* ---- clients ---- */

active proctype clients_of_serving_master() {
    do
    :: d_step { hello(serving) }
    :: d_step { greeted[serving] && !given_now[serving] && now < END ->
        grant(serving);
        assert(counter[serving] > highest); /* P4 */
        highest = counter[serving]
    }
    od
}

/* Its numbers count where a resource sees them first; smaller ones are refused there. That it
 * overtook the new master shows at the next grant above. */
active proctype clients_of_deposed_master() {
    do
    :: d_step { serving == 1 -> hello(0) }
    :: d_step { lingering > 0 && !given_now[0] ->
        lingering--;
        grant(0);
        highest = max(highest, counter[0])
    }
    od
}

/* ---- the world ---- */

/* A loss and a clock that was set back, both, are outside the promise (C5). */
#define CLOCK_OK (steps_back == 1)
/* The new master cannot know what the old one still gives: it must stay below where the new one
 * begins. Time helps: the old one was a minute ahead only when its own reign began. */
#define LINGER_OK (reign_known[0] && counter[0] + DEPOSED_GRANTS <= now + AHEAD)

inline pass_time() {
    now++; given_now[0] = false; given_now[1] = false
}

inline end_reign(s) { /* it takes time, too */
    pass_time();
    reign_known[s] = false;
    greeted[s] = false
}

inline lose_tail(s) {
    counter[s] = kept
}

active proctype time_and_faults() {
    do
    :: d_step { now < END -> pass_time() }
    :: d_step { kept = counter[serving] } /* saved, replicated */
    :: d_step { flushes > 0 && CLOCK_OK && now < END -> /* FLUSHALL: the connections stand */
        flushes--; pass_time(); reign_known[serving] = false; counter[serving] = 0 }
    :: d_step { counter[serving] == 0 && flushes == 0 -> counter[serving] = 1 } /* a bare INCR */
    :: d_step { restarts > 0 && now < END -> restarts--; end_reign(serving) } /* all kept */
    :: d_step { restarts > 0 && now < END && CLOCK_OK -> /* the tail lost */
        restarts--; end_reign(serving); lose_tail(serving) }
    :: d_step { failovers > 0 && now < END && CLOCK_OK -> /* to the replica, which lags */
        failovers--; pass_time();
        lingering = (LINGER_OK -> DEPOSED_GRANTS : 0);
        serving = 1; lose_tail(1) }
    :: d_step { steps_back > 0 && now > START + 2 && !MISSING(serving) && reign_known[serving] ->
        steps_back--; now = now - 2 } /* the clock is set back */
    od
}
