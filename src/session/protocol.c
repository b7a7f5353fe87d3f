/* SPDX-License-Identifier: MIT
 * protocol.c - how a client's locks are taken: by scripts, by transactions, by timestamps.
 */
#include <string.h>

#include "base/err.h"
#include "session/client.h"

static const char *const protocol_names[] = {
    [PROTOCOL_SCRIPT] = "script",
    [PROTOCOL_TRANSACTION] = "transaction",
    [PROTOCOL_TIMESTAMP] = "timestamp",
};

hf_err client_can(const hf_client *c, unsigned protocols, const char *what, hf_error *reterr)
{
    if (!c->plain)
        return HF_OK; /* the client has been freed, and client_enter() says so */
    enum protocol p = plain_protocol(c->plain);
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
    const struct greeting *g = c->home ? &c->home->greeting : NULL;
    c->plain = plain_new(c->topo, g ? g->counter : NULL, g ? g->reign : NULL,
                         u->skew_ms > 0 ? u->skew_ms : 0);
    if (!c->plain)
        return err_set(reterr, HF_ENOMEM, "out of memory");
    topo_attach(c->topo, c->plain);
    if (scripts_only && name && strcmp(name, protocol_names[PROTOCOL_SCRIPT]) != 0)
        return err_set(reterr, HF_ENOTSUP,
                       "a %s needs scripts on each of its servers: leave the protocol out",
                       topo_quorum(c->topo) ? "quorum" : "cluster");
    c->any_protocol = !name && !scripts_only;
    for (size_t i = 0; name && i < sizeof protocol_names / sizeof protocol_names[0]; i++) {
        if (strcmp(name, protocol_names[i]) == 0) {
            plain_choose(c->plain, (enum protocol)i);
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

/* Of a server that runs no scripts: a Sentinel runs nothing else of ours either. */
static hf_err refuse_sentinel(struct link *l, int64_t deadline_ms, hf_error *reterr)
{
    hf_bytes argv[] = { hf_str("INFO"), hf_str("server") };
    struct reply *rp;
    hf_err e = link_exchange(l, 2, argv, deadline_ms, &rp, reterr);
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

hf_err client_hello(hf_client *c, struct link *l, int64_t deadline_ms, long long *ret_code,
                    hf_error *reterr)
{
    const struct greeting *g = &c->home->greeting;
    hf_bytes keys[] = { hf_str(g->counter), hf_str(g->reign) }, args[] = { hf_str("") };
    struct script_call sc = { .id = SCRIPT_hello, .nkeys = 2, .keys = keys, .nargs = 1,
                              .args = args };
    struct reply *rp;
    bool refused = false;
    if (plain_protocol(c->plain) == PROTOCOL_SCRIPT) {
        hf_err e = script_greet(l, &sc, deadline_ms, &rp, &refused, reterr);
        if (e && !(refused && c->any_protocol))
            return e;
        if (!e) {
            *ret_code = rp->type == REPLY_ARRAY && rp->len > 0 ? rp->item[0]->num : -1;
            reply_free(rp);
            if (c->any_protocol) /* the members of a quorum are greeted at the same time */
                c->any_protocol = false; /* one that ran scripts once is not given up later */
            return HF_OK;
        }
        e = refuse_sentinel(l, deadline_ms, reterr);
        if (e)
            return e;
        log_to(&c->log, HF_LOG_WARNING,
               "the server runs no scripts for us, so locks are taken by transactions: waiting is "
               "by polling, in no order, and a crash costs the ttl (see docs/protocols.md)");
        plain_choose(c->plain, PROTOCOL_TRANSACTION);
    }
    return plain_hello(l, g->counter, g->reign, deadline_ms, ret_code, reterr);
}
