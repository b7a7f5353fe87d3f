/* SPDX-License-Identifier: MIT
 * model.h - a model of one server: its commands on a store, its scripts, which are the real ones,
 * run by Lua 5.1, and who has subscribed to what.
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

struct model {
    struct store store;
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
extern struct model model;

/* Empty, with no clock yet; nobody is connected. */
void model_reset(void);
/* Its life ends, and another begins: nobody is connected, no script is known. replid
 * NULL: the same. */
void model_restart(const char *run_id, const char *replid);

/* Somebody who is connected; NULL: nobody to push to. */
typedef void (*model_push)(void *conn, const char *text, size_t len);
void model_on_push(model_push fn);

/* Execute a command that came over conn. What it answers, as on the wire, until the next one. */
const struct reply_text *model_do(void *conn, int argc, const hf_bytes *argv);
void model_disconnected(void *conn);
/* How many listen on a channel. */
unsigned model_listeners(const char *channel);

static inline int64_t model_now_ms(void)
{
    return model.now_us / 1000;
}

/* Another text for a script: from now on this is what it does. NULL: its own again. False: it is
 * not Lua. */
bool model_replace(enum op_id id, const char *text);

#endif
