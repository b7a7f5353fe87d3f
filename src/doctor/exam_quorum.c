/* SPDX-License-Identifier: MIT
 * exam_quorum.c - is this a place that keeps the promises? The servers of a quorum.
 */
#include "doctor/exam.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/err.h"
#include "base/mem.h"
#include "net/stream.h"
#include "topo/keys.h"
#include "topo/quorum.h"

/* How old the data of a member is. */
struct member_data {
    bool    keeps;     /* it has an append-only file, */
    bool    fresh;     /* but our counter there began in this life of it */
    int64_t left_ms;   /* of the quarantine */
    int64_t begun_ms;  /* the counter, by our own clock; now, if there is none yet */
    bool    has;       /* there is one */
};

static long long number_of(struct exam *e, struct link *l, const char *section, const char *name)
{
    char text[32];
    struct reply *info = exam_info(e, l, section);
    long long n = strtoll(exam_field(info, name, text, sizeof text), NULL, 10);
    reply_free(info);
    return n;
}

/* Greet it as a client that only looks. False: it does not tell. */
static bool greet(struct exam *e, struct link *l, struct op_greeted *ret)
{
    AUTO(mem_freep) char *fence = keys_reserved(e->prefix, "fence");
    AUTO(mem_freep) char *reign = keys_reserved(e->prefix, "reign");
    struct scope s = { .counter = fence, .reign = reign };
    struct op op = { .id = OP_hello, .hello = { &s, "", true } };
    struct command cmd = { 0 };
    struct reply *rp = NULL;
    struct limit lim = { .at_ms = clock_now_ms() + e->timeout_ms };
    if (!fence || !reign || !l->stream || op_pack(&op, true, &cmd))
        return false;
    hf_err code = link_write(l, cmd.bytes + cmd.begin, cmd.len, &lim, NULL);
    command_free(&cmd);
    if (!code)
        code = link_receive(l, &lim, &rp, NULL);
    if (code) {
        link_close(l, false);
        return false;
    }
    bool told = rp->type != REPLY_ERROR;
    if (!told)
        reply_free(rp);
    else
        told = op_read(&op, rp, NULL) == HF_OK;
    *ret = op.got.greeted;
    op_clear(&op);
    return told && (ret->code == ANSWER_YES || ret->code == ANSWER_NO);
}

static void look_at_data(struct exam *e, struct link *l, struct member_data *ret)
{
    struct op_greeted got;
    int64_t quarantine = e->url->quarantine_ms >= 0 ? e->url->quarantine_ms : QUORUM_QUARANTINE_MS;
    if (!greet(e, l, &got))
        return;
    ret->keeps = number_of(e, l, "persistence", "aof_enabled") == 1;
    ret->left_ms = quarantine - number_of(e, l, "server", "uptime_in_seconds") * 1000;
    ret->fresh = got.fresh;
    ret->has = got.age_ms >= 0;
    ret->begun_ms = clock_now_ms() - (ret->has ? got.age_ms : 0);
}

/* Those who came back without the data that others still have: they do not vote for a while. */
static void exam_lost_data(struct exam *e, const struct member_data *data, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        const struct member_data *d = &data[i];
        bool older = false;
        for (size_t k = 0; k < n; k++)
            older |= data[k].has && data[k].begun_ms < d->begun_ms - QUORUM_TOGETHER_MS;
        if (!d->keeps || !d->fresh || !older || d->left_ms <= 0)
            continue;
        stream_address(&e->url->hosts[i], e->where, sizeof e->where);
        exam_tell(e, HF_GRADE_RISK, "persistence",
                  "see that its data folder outlives a restart (a volume, for a container), and "
                  "wait",
                  "it started lately without the data that others have, though appendonly yes is "
                  "set there, so it may have lost its own: no vote for another %lld s, until the "
                  "old leases have ended (P1)", (long long)(d->left_ms + 999) / 1000);
    }
}

static hf_err exam_member(struct exam *e, const struct url_host *host, struct member_data *ret)
{
    AUTO(mem_freep) struct link *l = mem_zalloc(sizeof *l);
    hf_error err = { 0 };
    if (!l || link_init(l) < 0)
        return HF_ENOMEM;
    stream_address(host, e->where, sizeof e->where);
    int64_t begun = clock_now_ms();
    struct limit lim = { .at_ms = begun + e->timeout_ms / 2 };
    hf_err code = link_open(l, e->url, host, &lim, &err);
    if (!code)
        code = exam_ping(e, l, &err);
    if (!code) {
        exam_tell(e, HF_GRADE_FINE, "reach", NULL, "connected and logged in within %lld ms",
                  (long long)(clock_now_ms() - begun));
        exam_server(e, l);
        look_at_data(e, l, ret);
    } else if (code != HF_ENOMEM) {
        exam_tell(e, HF_GRADE_RISK, exam_topic(code),
                  "a majority of the servers must answer", "%s", err.message);
    }
    link_clear(l);
    return code;
}

hf_err exam_quorum(struct exam *e, hf_error *reterr)
{
    size_t n = e->url->nhosts, needed = n / 2 + 1, up = 0, refused = 0;
    AUTO(mem_freep) struct member_data *data = mem_zalloc(n * sizeof *data);
    if (!data)
        return err_set(reterr, HF_ENOMEM, "out of memory");
    for (size_t i = 0; i < n; i++) {
        hf_err code = exam_member(e, &e->url->hosts[i], &data[i]);
        if (code == HF_ENOMEM)
            return err_set(reterr, code, "out of memory");
        up += code == HF_OK;
        refused += code == HF_EAUTH;
    }
    exam_lost_data(e, data, n);
    snprintf(e->where, sizeof e->where, "quorum");
    if (n < 3)
        exam_tell(e, HF_GRADE_RISK, "quorum", "run three, on different machines",
                  "%zu server(s): when one is gone there is no majority", n);
    else if (n % 2 == 0)
        exam_tell(e, HF_GRADE_NOTE, "quorum", "run one more or one less",
                  "%zu servers bear the loss of %zu, as %zu would", n, n - needed, n - 1);
    if (up >= needed)
        exam_tell(e, HF_GRADE_FINE, "quorum", NULL, "%zu of %zu servers answer, %zu are needed",
                  up, n,
                  needed);
    else if (up + refused >= needed)
        exam_tell(e, HF_GRADE_FAULT, "rights", "mend the login",
                  "%zu of %zu servers let us in, %zu are needed", up, n, needed);
    else
        exam_tell(e, HF_GRADE_FAULT, "reach", "bring them back",
                  "%zu of %zu servers answer%s, %zu are needed", up, n, up == 1 ? "s" : "",
                  needed);
    return up >= needed ? HF_OK : HF_ENOQUORUM;
}
