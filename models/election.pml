/* election.pml - the value of a leader, and who reads it (rules 22 and 23).
 *
 * That at most one holds the lock, and believes so, is the matter of the other models. Here two
 * candidates lead two terms, with up to two values in each; somebody looks once, at any time, or
 * observes. A server step is one script. A request may arrive a second time, much later.
 */
#ifndef WITHOUT
#define WITHOUT 0 /* spin -DWITHOUT=READ_TERM ... takes that rule away */
#endif
#define HAS(guard) (guard != WITHOUT)
#define UNDER_LOCK 1   /* a value is written only under the lock of its term */
#define LATER_STAYS 2  /* and not over a later one of the same term */
#define TAKE_OWN 3     /* who resigns takes away only a value of its own term */
#define READ_TERM 4    /* a value of another term than the lock's is not shown */
#define ONE_STEP 5     /* lock and value are read in one step */
#define WRITE_FIRST 6  /* a campaign returns after the value was written */
#define FOLLOWS 7      /* what renews the lock renews the value */
#define RINGS 8        /* writing and taking away ring */
#define LISTEN_STEP 9  /* an observer looks and listens in one step */
#define LEASE_TIMER 10 /* an observer looks at the end of the lease that it has seen */

#define TERMS 2
#define VALUES 2

byte lock;              /* the term of whom it is; 0 = free */
byte value_term, value; /* the key beside it; value_term 0 = none */
byte terms;             /* given so far */
bool leads[TERMS + 1];  /* its campaign has returned, and it has no reason to think otherwise */
byte known[TERMS + 1];  /* the newest value whose write was answered */
byte copy_term, copy_value; /* a second copy of a request; value 0: of taking away */
bool listed, rung;
byte copies = 1, losses = 1, deaths = 1; /* faults left */

inline ring()
{
    if
    :: HAS(RINGS) && listed -> rung = true; listed = false
    :: else
    fi
}

inline write(t, v)
{
    if
    :: (lock == t || !HAS(UNDER_LOCK)) &&
       !(HAS(LATER_STAYS) && value_term == t && value > v) -> value_term = t; value = v; ring()
    :: else
    fi
}

inline take_away(t)
{
    if
    :: value_term == t || !HAS(TAKE_OWN) -> value_term = 0; value = 0
    :: else
    fi;
    ring()
}

/* The request is sent twice, and this copy arrives some time. */
inline maybe_copy(t, v)
{
    if
    :: copies > 0 -> copies--; copy_term = t; copy_value = v
    :: true
    fi
}

active [2] proctype candidate()
{
    byte t, v;
    do
    :: atomic { lock == 0 && terms < TERMS -> terms++; t = terms; lock = t };
        if
        :: !HAS(WRITE_FIRST) -> leads[t] = true; known[t] = 1
        :: else
        fi;
        v = 1;
        do
        :: v <= VALUES ->
            atomic { maybe_copy(t, v); write(t, v) };
            atomic {
                if
                :: lock == t && value_term == t -> known[t] = v; leads[t] = true
                :: else /* lost meanwhile */
                fi
            };
            v++
        :: true -> break
        od;
        if
        :: atomic { deaths > 0 -> deaths--; leads[t] = false }; /* the lock lapses, see below */
            break
        :: true ->
            leads[t] = false;
            atomic { if :: lock == t -> lock = 0 :: else fi };
            atomic { maybe_copy(t, 0); take_away(t) };
            t = 0
        fi
    :: atomic { terms == TERMS -> break }
    od
}

/* Time passes: leases end, requests arrive late. */
active proctype world()
{
end:
    do
    :: atomic { copy_term > 0 ->
        if
        :: copy_value > 0 -> write(copy_term, copy_value)
        :: else -> take_away(copy_term)
        fi;
        copy_term = 0; copy_value = 0 }
    /* The holder stops believing first; of a dead one nobody is left. Nobody rings. */
    :: atomic { lock > 0 && losses > 0 && leads[lock] -> losses--; leads[lock] = false; lock = 0;
        if :: HAS(LEASE_TIMER) && listed -> rung = true; listed = false :: else fi }
    :: atomic { timeout && lock > 0 -> lock = 0;
        if :: HAS(LEASE_TIMER) && listed -> rung = true; listed = false :: else fi }
    /* A value ends with its lock, or, when nothing renews it, whenever. */
    :: atomic { value_term > 0 && (lock != value_term || !HAS(FOLLOWS)) -> value_term = 0; value = 0 }
    od
}

#define SHOWN(l, vt) (vt > 0 && (vt == l || !HAS(READ_TERM)))

/* One look: what had been said before it began is seen. */
inline look_once()
{
    atomic {
        if
        :: lock > 0 && leads[lock] -> must_term = lock; must = known[lock]
        :: else
        fi
    };
    if
    :: HAS(ONE_STEP) -> atomic { l = lock; vt = value_term; v = value }
    :: else -> l = lock; atomic { vt = value_term; v = value }
    fi;
    atomic {
        if
        :: l > 0 && SHOWN(l, vt) -> assert(vt == l)         /* EL4 */
        :: else -> v = 0
        fi;
        assert(l == 0 || l >= must_term);                  /* EL2 */
        assert(l == 0 || l != must_term || v >= must);     /* EL3 */
        l = 0; v = 0; vt = 0; must_term = 0; must = 0
    }
}

/* Look, listen, sleep until rung; when nothing happens any more, what it saw last is what is. */
inline observe()
{
    do
    :: true ->
        if
        :: HAS(LISTEN_STEP) -> atomic { l = lock; listed = true }
        :: else -> l = lock; listed = true
        fi;
        if
        :: atomic { rung -> rung = false; l = 0 }
        :: atomic { timeout && lock == 0 && copy_term == 0 && !rung -> assert(l == 0) }; /* EL5 */
            break
        fi
    od
}

active proctype looker()
{
    byte must_term, must, l, v, vt;
    if
    :: true -> look_once()
    :: true -> observe()
    fi
}
