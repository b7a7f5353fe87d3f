/* SPDX-License-Identifier: MIT
 * meeting.pml - a barrier: who meets is there, is counted once, and is told the truth.
 *
 * Three clients, two parties to a meeting; one client calls twice. Every request may be repeated, and
 * a copy of it may arrive at any time later, or never. Clients die, and give up.
 * README.md explains the guards.
 */
#ifndef WITHOUT
#define WITHOUT 0 /* spin -DWITHOUT=ONCE ... takes that rule away */
#endif
#define HAS(guard) (guard != WITHOUT)
#define ONCE 1         /* 22 a token is counted once */
#define NAMED 2        /* 24 an arrival names its generation */
#define PRESENT 3      /* 24 complete only when nobody is missing */
#define QUIT_BREAKS 4  /* 26 who gives up breaks the meeting ... */
#define QUIT_ASKS 5    /* 26 ... unless it was complete: then it has met */
#define QUIT_COUNTED 6 /* 26 ... but only if it was counted there */
#define TOMB 7         /* 22 one that gave up uncounted is never counted */

#define CLIENTS 3
#define PARTIES 2
#define TOKENS  4  /* one for each call: 0 and 1 are those of client 0 */
#define ROUNDS  6  /* one more than there can be */
#define OWNER(t) (t < 2 -> 0 : t - 1)
#define GIVEN_UP 99

byte current;         /* the generation that is open; 0: none */
byte last;            /* the newest */
byte arrived;
bool met[ROUNDS];
bool member[TOKENS];  /* of the open one */
byte done[TOKENS];    /* where it was counted, as the server remembers it; 0: nowhere */
byte times[TOKENS];   /* how often it was counted */
bool waiting[TOKENS]; /* its client lives, and is in that very call */
byte copies[TOKENS];  /* of the arrival, under way */
byte wanted[TOKENS];  /* the generation that the arrival names */
byte i;

inline clear()
{
    current = 0;
    arrived = 0;
    i = 0;
    do
    :: i < TOKENS -> member[i] = false; i++
    :: else -> break
    od;
    i = 0
}

/* Is everybody who was counted still there? A client that is dead is seen to be. */
#define MISSING(t) (member[t] && !alive[OWNER(t)])
#define ANYBODY_MISSING (MISSING(0) || MISSING(1) || MISSING(2) || MISSING(3))
bool alive[CLIENTS];

inline complete()
{
    if
    :: arrived == PARTIES && (!HAS(PRESENT) || !ANYBODY_MISSING) ->
        i = 0;
        do
        :: i < TOKENS ->
            /* B1: each of them still is there, and waits for this */
            assert(!member[i] || waiting[i]);
            i++
        :: else -> break
        od;
        met[current] = true;
        clear()
    :: else
    fi
}

#define FREE(t)    (!HAS(ONCE) || done[t] == 0)
#define OPEN_TO(t) (!HAS(NAMED) || current == wanted[t])

inline arrive(t)
{
    if
    :: HAS(ONCE) && done[t] != 0
    :: FREE(t) && current != 0 && arrived < PARTIES && OPEN_TO(t) ->
        arrived++;
        member[t] = true;
        done[t] = current;
        times[t]++;
        assert(times[t] == 1); /* B2 */
        complete()
    :: else
    fi
}

/* The network: copies of requests arrive when they like, or never. */
active proctype network()
{
    byte t;
end:
    do
    :: atomic {
        select(t : 0 .. 3);
        if
        :: copies[t] > 0 ->
            copies[t]--;
            if
            :: arrive(t)
            :: true
            fi
        :: else
        fi;
        t = 0
       }
    od
}

inline quit(t)
{
    if
    :: done[t] == 0 ->
        if
        :: HAS(TOMB) -> done[t] = GIVEN_UP
        :: else
        fi;
        if
        :: !HAS(QUIT_COUNTED) && met[wanted[t]] -> verdict = 1
        :: else
        fi
    :: done[t] != 0 && done[t] != GIVEN_UP ->
        if
        :: met[done[t]] && HAS(QUIT_ASKS) -> verdict = 1
        :: else ->
            if
            :: HAS(QUIT_BREAKS) && current == done[t] -> clear()
            :: else
            fi
        fi
    :: else
    fi
}

proctype client(byte c)
{
    byte t = (c == 0 -> 0 : c + 1), verdict; /* 1 met, 2 broken, 3 gave up */
    do
    :: t < c + 2 ->
        atomic { /* open */
            if
            :: current == 0 -> last++; current = last
            :: else
            fi;
            wanted[t] = current;
            waiting[t] = true;
            verdict = 0
        };
        do
        :: atomic { verdict == 0 && copies[t] == 0 -> copies[t]++ }      /* sent, not answered */
        :: atomic { verdict == 0 && done[t] == 0 ->                      /* sent and answered */
            arrive(t);
            if
            :: done[t] == 0 && HAS(NAMED) && current != wanted[t] -> verdict = 2 /* over: not counted */
            :: else
            fi }
        :: atomic { verdict == 0 && done[t] != 0 && done[t] != GIVEN_UP && current != done[t] ->
            if                                                           /* asked again */
            :: met[wanted[t]] -> verdict = 1
            :: else -> verdict = 2
            fi }
        :: atomic { verdict == 0 && current == wanted[t] -> complete() } /* a look completes it */
        :: atomic { verdict == 0 -> verdict = 3; quit(t) }
        :: atomic { verdict != 0 ->
            waiting[t] = false;
            /* who is told that it met was counted there, and who is not did not meet */
            assert(verdict != 1 || (times[t] == 1 && done[t] == wanted[t] && met[wanted[t]]));
            assert(verdict == 1 || done[t] == 0 || done[t] == GIVEN_UP || !met[done[t]]);
            break }
        :: atomic { waiting[t] && alive[c] -> alive[c] = false; waiting[t] = false; goto dead }
        od;
        t++
    :: else -> break
    od;
dead:
    skip
}

init {
    atomic {
        alive[0] = true;
        alive[1] = true;
        alive[2] = true;
        run client(0);
        run client(1);
        run client(2)
    }
}
