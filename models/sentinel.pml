/* sentinel.pml - a switch of the master, seen by clients that wait for replicas (P1, P5).
 *
 * A master and two replicas; one client takes and renews a lock, another one takes it. A grant or a
 * renewal is a write on the server that the client uses, then WAIT. The Sentinels name one of the
 * replicas master: the old one goes on saying that it is the master, and the other replica follows
 * it, until they are told; the clients learn of it when they ask. Or the master restarts with
 * nothing, before anybody has noticed. Data reach replicas late, and any of them may be named. Time
 * passes in ticks.
 */
#ifndef WITHOUT
#define WITHOUT 0 /* spin -DWITHOUT=ACKS ... takes that rule away */
#endif
#define HAS(guard) (guard != WITHOUT)
#define ACKS 1         /* a grant counts when so many replicas have it */
#define KEEP_ACKS 2    /* and only then a renewal lengthens belief */
#define FROM_SENDING 3 /* 7 from the sending of the request */
#define CONFIRMED 4    /* SEN2 nothing is sent long after the Sentinels last named that server */
#define YOUNG 5        /* SEN3 a server that may have come back empty is not used */
#define VERIFY 6       /* SEN4 who is told of a switch asks the new master; what it lacks is lost */

#define SERVERS 3
#define TTL 2
#define when(condition, action) if :: (condition) -> action :: else fi

mtype = { IDLE, SENT, WRITTEN };

byte wanted;                 /* acknowledgements: 1, or 2, which is all */
byte named;                  /* the server that the Sentinels name */
bool switched, late;         /* and since then more time has passed than SEN2 allows */
byte faults = 1, writes[3];  /* what may still happen */

/* The servers. */
byte follows[SERVERS];       /* itself: it says that it is a master */
byte owner[SERVERS], left[SERVERS], version[SERVERS];
byte young;                  /* ticks for which server 0 is too young */

/* The clients, 1 and 2. */
byte at[3], sure[3];
mtype request[3];
byte age[3], wrote[3];
bool renews[3], told[3];     /* it has asked since the switch */
bool past[3];                /* its request was sent to a master of the past */

#define HAS_IT(s, c) (follows[s] == at[c] && s != at[c] && version[s] >= wrote[c])
#define ACKED(c) (HAS_IT(0, c) + HAS_IT(1, c) + HAS_IT(2, c) >= wanted)

inline put(s, who, ticks) {
    owner[s] = who; left[s] = ticks; version[s]++
}

/* SEN1: connections lead to the server that is named; later it may be another. */
#define MAY_SEND(c) (writes[c] > 0 && request[c] == IDLE && \
    (at[c] == named || !late || !HAS(CONFIRMED)) && (young == 0 || at[c] != 0 || !HAS(YOUNG)))

inline send(c, renewal) {
    writes[c]--; request[c] = SENT; renews[c] = renewal; past[c] = (late && at[c] != named)
}

inline write(c) { /* acquire or keep, when it arrives */
    if
    :: follows[at[c]] == at[c] && owner[at[c]] == (renews[c] -> c : 0) ->
        put(at[c], c, TTL); wrote[c] = version[at[c]]; request[c] = WRITTEN
    :: else -> when(renews[c], sure[c] = 0); request[c] = IDLE; age[c] = 0
    fi
}

inline answered(c) { /* WAIT has ended: enough have it, or it takes no longer */
    if
    :: ACKED(c) || !HAS(ACKS) && !renews[c] || !HAS(KEEP_ACKS) && renews[c] ->
        when(!HAS(FROM_SENDING), age[c] = 0);
        when(age[c] < TTL && TTL - age[c] > sure[c],
            assert(!past[c]); /* SEN2 */
            sure[c] = TTL - age[c])
    :: else -> when(!renews[c] && owner[at[c]] == c, put(at[c], 0, 0))
    fi;
    request[c] = IDLE; age[c] = 0; wrote[c] = 0; renews[c] = false; past[c] = false
}

inline hang_up(c) {
    request[c] = IDLE; age[c] = 0; wrote[c] = 0; renews[c] = false; past[c] = false
}

inline follow(c) { /* its connections are closed; what it holds is proved anew */
    at[c] = named; told[c] = true; hang_up(c);
    if
    :: sure[c] > 0 && owner[named] == c -> put(named, c, TTL)
    :: sure[c] > 0 && owner[named] != c && HAS(VERIFY) -> sure[c] = 0
    :: else
    fi
}

proctype client(byte c) {
end:
    do
    :: d_step { MAY_SEND(c) && sure[c] == 0 -> send(c, false) }
    :: d_step { MAY_SEND(c) && sure[c] > 0 -> send(c, true) }
    :: d_step { request[c] == SENT -> write(c) }
    :: d_step { request[c] == WRITTEN -> answered(c) }
    :: d_step { switched && !told[c] -> follow(c) }
    od
}

proctype replication(byte s) {
end:
    do
    :: d_step { follows[s] != s &&
        (version[s] != version[follows[s]] || owner[s] != owner[follows[s]]) ->
        owner[s] = owner[follows[s]]; left[s] = left[follows[s]];
        version[s] = version[follows[s]] }
    :: d_step { switched && s != named && follows[s] != named -> follows[s] = named } /* is told */
    od
}

inline pass(s) {
    when(left[s] > 0, left[s]--; when(left[s] == 0, owner[s] = 0))
}

inline grow_old(c) {
    when(sure[c] > 0, sure[c]--);
    when(request[c] != IDLE && age[c] < TTL, age[c]++)
}

proctype world() {
end:
    do
    :: d_step { sure[1] > 0 || sure[2] > 0 || left[named] > 0 || young > 0 ->
        pass(0); pass(1); pass(2); grow_old(1); grow_old(2); when(young > 0, young--) }
    :: d_step { faults > 0 -> faults--; switched = true; named = 1; follows[1] = 1 } /* or 2 */
    :: d_step { faults > 0 -> faults--; put(0, 0, 0); young = TTL; /* restarts with nothing */
        hang_up(1); hang_up(2) }
    :: d_step { switched && !late -> late = true }
    :: d_step { sure[1] > 0 && sure[2] > 0 && wanted == SERVERS - 1 -> assert(false) } /* P1 */
    :: d_step { sure[1] > 0 && sure[2] > 0 && told[1] && told[2] -> assert(false) }
    :: d_step { told[1] && sure[1] > 0 && owner[named] != 1 -> assert(false) } /* P5: re-verified */
    :: d_step { told[2] && sure[2] > 0 && owner[named] != 2 -> assert(false) }
    od
}

init {
    atomic {
        request[1] = IDLE; request[2] = IDLE; writes[1] = 2; writes[2] = 1;
        if
        :: wanted = 1
        :: wanted = SERVERS - 1
        fi;
        run client(1); run client(2); run replication(0); run replication(1); run replication(2);
        run world()
    }
}
