/* SPDX-License-Identifier: MIT
 * protocol.c - how a client's locks are taken: by scripts, by transactions, by timestamps; and the
 * greeting of each fresh connection, which finds out.
 */
#include <string.h>

#include "base/err.h"
#include "exec/noscript.h"
#include "net/servererr.h"
#include "session/client.h"

static const char *const protocol_names[] = {
    [PROTOCOL_SCRIPT] = "script",
    [PROTOCOL_TRANSACTION] = "transaction",
    [PROTOCOL_TIMESTAMP] = "timestamp",
};

hf_err client_can(const hf_client *c, unsigned protocols, const char *what, hf_error *reterr)
{
    if (!c->exec)
        return HF_OK; /* the client has been freed, and client_enter() says so */
    enum protocol p = exec_protocol(c->exec);
    if (protocols & (1u << p))
        return HF_OK;
    return err_set(reterr, HF_ENOTSUP,
                   "%s is not possible with the protocol %s, which this client uses: leave it out, "
                   "or use the protocol script (see docs/protocols.md)", what, protocol_names[p]);
}

hf_err client_choose_protocol(hf_client *c, const char *asked, const struct url *u,
                              hf_error *reterr)
{
    const char *name = asked ? asked : u->protocol;
    bool scripts_only = topo_quorum(c->topo) || topo_cluster(c->topo);
    c->exec = exec_new(c->topo, c->keyspace ? &c->keyspace->scope : NULL,
                       u->skew_ms > 0 ? u->skew_ms : 0);
    if (!c->exec)
        return err_set(reterr, HF_ENOMEM, "out of memory");
    if (scripts_only && name && strcmp(name, protocol_names[PROTOCOL_SCRIPT]) != 0)
        return err_set(reterr, HF_ENOTSUP,
                       "a %s needs scripts on each of its servers: leave the protocol out",
                       topo_quorum(c->topo) ? "quorum" : "cluster");
    c->any_protocol = !name && !scripts_only;
    for (size_t i = 0; name && i < sizeof protocol_names / sizeof protocol_names[0]; i++) {
        if (strcmp(name, protocol_names[i]) == 0) {
            exec_choose(c->exec, (enum protocol)i);
            return HF_OK;
        }
    }
    if (!name)
        return HF_OK;
    char shown[60];
    return err_set(reterr, HF_ECONFIG,
                   "the protocol %s is not known: use script, transaction or timestamp",
                   err_quote(shown, sizeof shown, name, strlen(name)));
}

/* ---- the greeting ------------------------------------------------------------------------- */

/* Of a server that runs no scripts: a Sentinel runs nothing else of ours either. */
static hf_err refuse_sentinel(struct link *l, const struct limit *lim, hf_error *reterr)
{
    hf_bytes argv[] = { hf_str("INFO"), hf_str("server") };
    struct reply *rp;
    hf_err e = link_exchange(l, 2, argv, lim, &rp, reterr);
    if (e)
        return e;
    /* redis_mode, or the server_mode of a Valkey. */
    bool sentinel = rp->type == REPLY_BULK && strstr(rp->str, "_mode:sentinel");
    reply_free(rp);
    if (!sentinel)
        return HF_OK;
    return err_set(reterr, HF_ECONFIG, "it is a Sentinel, which keeps no locks: use "
                   "redis+sentinel://HOST,HOST,.../MASTER");
}

/* Not allowed, renamed away, or unknown to a proxy. A right that is missing for a key, or for a
 * command inside the script, is something else: it would be missing without scripts as well. */
static bool no_scripts(const struct reply *rp)
{
    return strstr(rp->str, "unknown command") || strstr(rp->str, "unsupported command")
           || (strncmp(rp->str, "NOPERM", 6) == 0 && strcasestr(rp->str, "'eval'"));
}

/* *ret_refused: the server, or a proxy before it, runs no scripts for us. When the client is being
 * opened, who we are is found out while the server thinks. */
static hf_err hello_by_script(hf_client *c, const struct op_hello *h, struct link *l,
                              const struct limit *lim, struct op_greeted *ret, bool *ret_refused,
                              hf_error *reterr)
{
    struct op op = { .id = OP_hello, .hello = *h };
    struct command cmd = { 0 };
    struct reply *rp = NULL;
    hf_err e = op_pack(&op, true, &cmd);
    if (e)
        return err_set(reterr, e, "%s", hf_err_text(e));
    e = link_write(l, cmd.bytes + cmd.begin, cmd.len, lim, reterr);
    command_free(&cmd);
    if (!e)
        identity_complete(&c->identity);
    if (!e)
        e = link_receive(l, lim, &rp, reterr);
    if (e)
        return e;
    if (rp->type == REPLY_ERROR) {
        *ret_refused = no_scripts(rp);
        e = server_refusal(rp, reterr);
        reply_free(rp);
        return e;
    }
    e = op_read(&op, rp, reterr);
    *ret = op.got.greeted;
    op_clear(&op);
    return e;
}

/* By a script that lets a reign begin only if somebody takes numbers: see struct scope. */
static hf_err hello(hf_client *c, struct link *l, const struct limit *lim,
                    struct op_greeted *ret, bool *ret_due, bool *ret_refused, hf_error *reterr)
{
    struct scope *s = &c->keyspace->scope;
    struct op_hello h = { s, "", !atomic_load(&s->takes) };
    hf_err e = hello_by_script(c, &h, l, lim, ret, ret_refused, reterr);
    if (e || !h.look || ret->code != ANSWER_YES)
        return e;
    atomic_store(&s->due, true);
    *ret_due = !atomic_load(&s->takes);
    if (*ret_due)
        return HF_OK;
    h.look = false;
    return hello_by_script(c, &h, l, lim, ret, ret_refused, reterr);
}

/* By scripts; or without, where nobody asked for scripts and there are none. Then whoever takes a
 * number does so on a connection of its own, and greets it itself. */
static hf_err greet(hf_client *c, struct link *l, const struct limit *lim, struct op_greeted *ret,
                    bool *ret_due, hf_error *reterr)
{
    struct scope *s = &c->keyspace->scope;
    bool refused = false;
    if (exec_protocol(c->exec) != PROTOCOL_SCRIPT)
        return noscript_hello(l, s, true, lim, &ret->code, reterr);
    hf_err e = hello(c, l, lim, ret, ret_due, &refused, reterr);
    if (!e && c->any_protocol) /* the members of a quorum are greeted at the same time */
        c->any_protocol = false; /* one that ran scripts once is not given up later */
    if (!e || !(refused && c->any_protocol))
        return e;
    e = refuse_sentinel(l, lim, reterr);
    if (e)
        return e;
    log_to(&c->log, HF_LOG_WARNING,
           "the server runs no scripts for us, so locks are taken by transactions: waiting is "
           "by polling, in no order, and a crash costs the ttl (see docs/protocols.md)");
    exec_choose(c->exec, PROTOCOL_TRANSACTION);
    return noscript_hello(l, s, true, lim, &ret->code, reterr);
}

hf_err client_hello(hf_client *c, struct link *l, const struct limit *lim, struct greeted *ret,
                    hf_error *reterr)
{
    struct op_greeted got = { .code = ANSWER_NO };
    bool due = false;
    hf_err e = greet(c, l, lim, &got, &due, reterr);
    if (!e && got.code == ANSWER_BAD_COUNTER)
        e = op_bad_counter(&c->keyspace->scope, reterr);
    if (!e && got.code == ANSWER_NO_INFO)
        client_warn_of_info(c);
    *ret = (struct greeted){ .age_ms = got.age_ms, .fresh = got.fresh, .due = due };
    return e;
}
