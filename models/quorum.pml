/* quorum.pml - one lock on a majority of servers: one holder, and numbers that rise (Q1, Q2, Q5).
 *
 * Each client takes the lock once: phase 1 asks all servers for it, phase 2 writes the largest number
 * that it heard of back to them, and a majority must do so. It may leave phase 2 out when a majority
 * has told that very number. Any request may not arrive, and any answer may come too late to count. Leases end at any time, but not while their holder believes: its own
 * clock ends that first. A server that restarts forgets its lock and keeps its counter (an append-only
 * file, or a time that is not behind: docs/quorum.md).
 */
#ifndef WITHOUT
#define WITHOUT 0 /* spin -DWITHOUT=WRITE_BACK ... takes that rule away */
#endif
#define HAS(guard) (guard != WITHOUT)
#define WRITE_BACK 1  /* Q2 the grant counts when a majority has the number */
#define COUNT_HEARD 2 /* Q2 a server whose own number is larger does not count */
#define NEVER_LOWER 3 /* Q2 its counter is lifted, never lowered */
#define OWN_CLOCK 4   /* Q1 a grant whose lease may have ended meanwhile is none */
#define QUARANTINE 5  /* Q5 a server that forgot does not vote until what it forgot is over */
#define SAME_NUMBER 6 /* Q2 without a second phase a majority must have told the same number */

#define SERVERS 3
#define CLIENTS 3
#define MAJORITY 2
#define max(a, b) ((a) > (b) -> (a) : (b))

byte owner[SERVERS];    /* 0 = free */
byte number[SERVERS];   /* of the owner's hold there */
byte counter[SERVERS];
bool agreed[SERVERS];   /* the owner counts on its lease there */
bool young[SERVERS];    /* it restarted, and may not vote yet */
byte forgot[SERVERS];   /* whose agreed hold it forgot */
bool believes[CLIENTS + 1];
bool late[CLIENTS + 1]; /* by its own clock, what it has been told is over */
byte holders;           /* how many believe */
byte highest;           /* the largest number given */
bool given[20];
byte started;
byte faults = 1; /* leases that end, servers that restart */

#define free(s) owner[s] = 0; agreed[s] = false; number[s] = 0

inline ask(s) { /* acquire.lua, if it arrives */
    if
    :: owner[s] == 0 && !(HAS(QUARANTINE) && young[s]) ->
        owner[s] = me;
        agreed[s] = false;
        counter[s]++;
        number[s] = counter[s];
        if
        :: heard++;
            same = (number[s] > n -> 1 : (number[s] == n -> same + 1 : same));
            n = max(n, number[s]);
            agreed[s] = true
        :: skip /* the answer comes too late */
        fi
    :: skip
    fi
}

inline write_back(s) { /* agree.lua, if it arrives */
    if
    :: true ->
        if
        :: owner[s] == me ->
            if
            :: number[s] <= n || !HAS(COUNT_HEARD) -> acks++; agreed[s] = true
            :: else
            fi;
            number[s] = n
        :: else
        fi;
        counter[s] = (HAS(NEVER_LOWER) -> max(counter[s], n) : n)
    :: skip
    fi
}

inline ask_anew(s) { /* the lease of phase 1 does not count any more */
    if :: owner[s] == me -> agreed[s] = false :: else fi;
    if :: forgot[s] == me -> forgot[s] = 0 :: else fi
}

inline let_go(s) {
    if :: owner[s] == me -> free(s) :: else fi
}

proctype client(byte me)
{
    byte n, heard, same, acks, before;

    atomic { /* one of them is the first, and so on */
        started == me - 1 -> started = me;
        before = highest; /* given before this call began */
        ask(0)
    };
    atomic { ask(1) };
    atomic { ask(2) };
    if
    :: heard >= MAJORITY ->
        if
        :: same >= MAJORITY || !HAS(SAME_NUMBER) -> atomic { acks = heard }
        :: true ->
            atomic { ask_anew(0); ask_anew(1); ask_anew(2); late[me] = false; write_back(0) };
            atomic { write_back(1) };
            atomic { write_back(2) }
        fi;
        atomic {
            if
            :: (acks >= MAJORITY || !HAS(WRITE_BACK)) && !(late[me] && HAS(OWN_CLOCK)) ->
                assert(n > before);
                assert(!given[n]);
                given[n] = true;
                highest = max(highest, n);
                if
                :: acks >= MAJORITY -> assert(holders == 0); holders++; believes[me] = true
                :: else
                fi
            :: else
            fi
        };
        atomic { if :: believes[me] -> believes[me] = false; holders-- :: else fi }
    :: else
    fi;
    atomic { /* one by one is as if some of them expired */
        let_go(0); let_go(1); let_go(2);
        late[me] = false; n = 0; heard = 0; same = 0; acks = 0; before = 0
    }
}

inline expire(s) {
    owner[s] != 0 && faults > 0 && !believes[owner[s]] ->
        if :: agreed[s] -> late[owner[s]] = true :: else fi;
        free(s);
        faults--
}

inline restart(s) {
    faults > 0 && !young[s] ->
        forgot[s] = (agreed[s] -> owner[s] : 0);
        free(s);
        young[s] = true;
        faults--
}

inline grow_up(s) { /* as much time has passed as the longest lease has */
    young[s] && !believes[forgot[s]] ->
        if :: forgot[s] -> late[forgot[s]] = true :: else fi;
        young[s] = false;
        forgot[s] = 0
}

active proctype world()
{
    do
    :: atomic { expire(0) } :: atomic { expire(1) } :: atomic { expire(2) }
    :: atomic { restart(0) } :: atomic { restart(1) } :: atomic { restart(2) }
    :: atomic { grow_up(0) } :: atomic { grow_up(1) } :: atomic { grow_up(2) }
    :: break
    od
}

init
{
    atomic { run client(1); run client(2); run client(3) }
}
