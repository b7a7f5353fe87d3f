/* SPDX-License-Identifier: MIT
 * model.h - a model of a server: its commands on a store, its scripts, which are the real ones,
 * run by Lua 5.1, and who has subscribed to what. There is one, or there are two that are a cluster
 * (slots.h).
 *
 * A command that the model does not know ends the test: it says nothing about what it does not
 * know. tests/sim/model.c compares it with a real server.
 */
#ifndef SIM_MODEL_H
#define SIM_MODEL_H

#include "op/op.h"
#include "sim/lib/store.h"

struct reply_text {
    char  *p;
    size_t len, room;
};

#define MODEL_NODES    2
#define MODEL_SUBS_MAX 128

struct model_sub {
    void *conn;
    bool  sharded;
    char  channel[120];
};

struct model {
    struct store store;
    struct model_sub sub[MODEL_SUBS_MAX];
    size_t       nsubs;
    bool         knows[OP_COUNT]; /* this script */
    char         run_id[41], replid[41];
    int64_t      now_us; /* its own clock, since 1970; to be kept up by whoever runs it */
    uint64_t     errors; /* scripts that ended with one */
    char         error[200]; /* the last one */
    int          op;     /* the script that ran last in model_do(); -1: none did */
    const hf_bytes *key; /* its KEYS, and behind them its ARGV, */
    int          nkeys, nargs; /* as long as the command lasts */
    int64_t      said;   /* by the script: its answer, or the first of it; 0: no number */
};
extern struct model model_node[MODEL_NODES], *model; /* all; the one that works now, or did last */
extern int model_nodes; /* how many there are; 1: no cluster */

/* So many, empty, with no clock yet; nobody is connected. */
void model_reset(int nodes);
/* The life of the one that works now ends, and another begins: nobody is connected, no script is
 * known. replid NULL: the same. */
void model_restart(const char *run_id, const char *replid);

/* Somebody who is connected; NULL: nobody to push to. */
typedef void (*model_push)(void *conn, const char *text, size_t len);
void model_on_push(model_push fn);

/* Execute a command that came over conn. What it answers, as on the wire, until the next one. In a
 * cluster: asking, it comes behind ASKING; port, where conn finds each node. */
struct model_way {
    bool asking;
    int  port[MODEL_NODES];
};
const struct reply_text *model_do(void *conn, const struct model_way *way, int argc,
                                  const hf_bytes *argv);
void model_disconnected(void *conn);
/* How many listen on a channel, at the server that works now; in a cluster, at the one that has its
 * slot. */
unsigned model_listeners(const char *channel);
/* What there is under this key, wherever it is; NULL: nothing. */
struct entry *model_find(hf_bytes key);
/* In a cluster: the one that works now has lost a slot, and so have those who listen there. */
void model_unsubscribe(unsigned slot);

static inline int64_t model_now_ms(void)
{
    return model->now_us / 1000;
}

/* Another text for a script: from now on this is what it does. NULL: its own again. False: it is
 * not Lua. */
bool model_replace(enum op_id id, const char *text);

#endif
