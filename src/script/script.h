/* SPDX-License-Identifier: MIT
 * script.h - running the embedded Lua scripts, whatever the connection does meanwhile.
 */
#ifndef SCRIPT_SCRIPT_H
#define SCRIPT_SCRIPT_H

#include "topo/topo.h"

/* Every *.lua file beside this one. */
enum script_id {
#define HF_SCRIPT(name, sha, text) SCRIPT_##name,
#include "scripts.inc"
#undef HF_SCRIPT
    SCRIPT_COUNT
};

/* How operations reach the server: by scripts, or as script/plain.h does. */
enum protocol { PROTOCOL_SCRIPT, PROTOCOL_TRANSACTION, PROTOCOL_TIMESTAMP };

/* What every number of a lock is taken from, and what has to be done once on each connection before
 * the first is: hello.lua. Where one server has all locks, that is when it is connected to. In a
 * cluster each slot has its own counter, and the greeting goes along with the requests. */
struct greeting {
    const char *counter, *reign;
    const char *nothing; /* in a cluster: a key of the slot that never is there. Named in a script, it
                            keeps the script from being run while the slot is being moved. Else NULL */
    _Atomic uint64_t done[LANES]; /* where and when: greeting_mark() */
};

/* The connection on which it was done (conn_epoch()), and how often the keys had moved by then:
 * where they come back to, numbers may have been lost that were given elsewhere. */
static inline uint64_t greeting_mark(unsigned epoch, unsigned moves)
{
    return (uint64_t)epoch << 32 | moves;
}
static inline unsigned greeting_epoch(uint64_t mark)
{
    return (unsigned)(mark >> 32);
}

struct script_call {
    enum script_id    id;
    size_t            nkeys, nargs;
    const hf_bytes   *keys, *args;
    int64_t           deadline_ms;
    const atomic_int *stop; /* may be NULL */
    bool              urgent; /* as in struct call */
    enum topo_lane    lane;   /* with replicas to be waited for */
    struct greeting  *greeting; /* when the script takes numbers; else NULL */
    /* out */
    struct reply     *reply;    /* never an error of the server; to be freed */
    int64_t           sent_ms;  /* when the request that was answered left */
    unsigned          epoch;    /* on which connection */
    bool              by_key;   /* done key by key, because the slot is being moved */
    unsigned          in_doubt; /* how many earlier sendings got no answer */
    int               acked, wanted; /* how many replicas have what it wrote, of how many; not on the
                                        plain lane */
};

/* Replicas were to be waited for, and too few of them have what it wrote. */
static inline bool script_unacked(const struct script_call *sc)
{
    return sc->acked < sc->wanted;
}
/* HF_EREPLICAS, and how many. What is known about the lock is the caller's to say. */
hf_err script_too_few(const struct script_call *sc, const char *what, hf_error *reterr);

/* The command for it: EVALSHA sha n keys args, or EVAL text n keys args. argv has room for 4 more
 * than keys and args. Returns how many. */
int script_fill(hf_bytes *argv, const struct script_call *sc, bool text, char count[16]);

/* Run a script on the server of keys[0]. Every script can be repeated: what got no answer is sent
 * again until the deadline. NOSCRIPT is mended unseen; errors that pass are waited out.
 *
 *   HF_OK       reply, sent_ms; in_doubt says whether copies may still be under way
 *   HF_EUNSURE  sent (in_doubt times), never answered
 *   others      the last attempt was not executed; if in_doubt is not 0, an earlier one may be   */
hf_err script_run(struct topo *t, struct script_call *sc, hf_error *reterr);

/* Several at once, none of which takes numbers: as script_run() for each, with ret[i] and err[i].
 * In a cluster they are sent together, and waited for together until the first one's deadline. At
 * most CONN_ASKS_MAX. */
void script_run_all(struct topo *t, struct script_call *sc, size_t n, hf_err *ret, hf_error *err);

/* The same on a connection that is being greeted (link_exchange()). *ret_refused: the server, or a
 * proxy before it, runs no scripts for us. */
hf_err script_greet(struct link *l, const struct script_call *sc, int64_t deadline_ms,
                    struct reply **ret, bool *ret_refused, hf_error *reterr);

#endif
