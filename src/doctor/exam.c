/* SPDX-License-Identifier: MIT
 * exam.c - is this a place that keeps the promises? The whole, and a lock for a try.
 */
#include "doctor/exam.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/err.h"
#include "base/mem.h"
#include "net/servererr.h"
#include "session/client.h"

#define TRY_TTL_MS 10000

/* Words of a server may be in it: they must not write to the terminal of who prints it. */
static void make_printable(char *text)
{
    for (; *text; text++)
        if (*text < ' ' || *text > '~')
            *text = '?';
}

void exam_tell(struct exam *e, hf_grade grade, const char *topic, const char *advice,
               const char *fmt, ...)
{
    char text[600];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    make_printable(text);
    make_printable(e->where);
    hf_finding f = { grade, e->where, topic, text, advice };
    e->each(&f, e->arg);
}

struct reply *exam_ask(struct exam *e, struct link *l, const char *const *words, int n,
                       bool *ret_refused)
{
    hf_bytes argv[8];
    struct reply *rp = NULL;
    for (int i = 0; i < n; i++)
        argv[i] = hf_str(words[i]);
    if (ret_refused)
        *ret_refused = false;
    if (!l->stream)
        return NULL;
    struct limit lim = { .at_ms = clock_now_ms() + e->timeout_ms };
    if (link_exchange(l, n, argv, &lim, &rp, NULL)) {
        link_close(l, false);
        return NULL;
    }
    if (rp->type != REPLY_ERROR)
        return rp;
    if (ret_refused)
        *ret_refused = true;
    return reply_free(rp);
}

/* A user without a right to PING is logged in all the same, and a server whose disk is full, which
 * says so even then, is there: what is wrong with it is told by those who look at it. */
static bool is_there(const struct reply *rp)
{
    return rp->type != REPLY_ERROR || strncmp(rp->str, "NOPERM", 6) == 0
           || strncmp(rp->str, "MISCONF", 7) == 0;
}

hf_err exam_ping(struct exam *e, struct link *l, hf_error *reterr)
{
    hf_bytes argv[] = { hf_str("PING") };
    struct reply *rp = NULL;
    hf_err judged, code;
    struct limit lim = { .at_ms = clock_now_ms() + e->timeout_ms };
    code = link_exchange(l, 1, argv, &lim, &rp, reterr);
    if (code)
        return code;
    if (!is_there(rp)) {
        server_judge(rp, &judged);
        code = server_error(rp, judged, reterr);
    }
    reply_free(rp);
    return code;
}

/* ---- a lock for a try ----------------------------------------------------------------------- */

/* Thread: any. What a client warns about is a finding. */
static void on_log(void *arg, hf_log level, const char *message)
{
    struct exam *e = arg;
    if (level <= HF_LOG_WARNING && !strstr(message, "evict"))
        exam_tell(e, HF_GRADE_RISK, "rights", "see docs/acl.md", "%s", message);
}

static void tell_failure(struct exam *e, hf_err code, const hf_error *err)
{
    bool rights = code == HF_EAUTH;
    bool reach = code == HF_ECONN || code == HF_EUNSURE || code == HF_ENOQUORUM;
    const char *topic = rights ? "rights" : reach ? "reach" : code == HF_EREPLICAS ? "replicas"
                        : code == HF_ECOUNTER ? "fence" : "session";
    const char *advice = code == HF_ECOUNTER ? "holdfast doctor --repair-fence puts it aside"
                                             : NULL;
    exam_tell(e, HF_GRADE_FAULT, topic, advice, "%s", err->message);
}

static void try_lock(struct exam *e, hf_client *c, const char *tag)
{
    hf_error err = { 0 };
    hf_lock *m = NULL;
    char name[80];
    hf_lock_opts o = { .size = sizeof o, .ttl_ms = TRY_TTL_MS };
    bool cluster = e->url->topology == URL_CLUSTER;
    snprintf(name, sizeof name, tag ? "doctor %s {%s}" : "doctor %s", c->session, tag ? tag : "");
    hf_err code = hf_lock_open(c, hf_str(name), &o, &m, &err);
    int64_t begun = clock_now_ms();
    if (!code)
        code = hf_lock_acquire(m, 0, NULL, &err);
    int64_t took = clock_now_ms() - begun;
    bool present = !code && hf_lock_full_time_ms(m) < TRY_TTL_MS;
    if (!code)
        code = hf_lock_release(m, &err);
    if (code)
        tell_failure(e, code, &err);
    else if (e->url->topology == URL_QUORUM)
        exam_tell(e, HF_GRADE_FINE, "session", NULL,
                  "a lock was granted by a majority, and given back (%lld ms)", (long long)took);
    else if (present)
        exam_tell(e, HF_GRADE_FINE, "session", NULL,
                  "a lock was taken, seen by the server, and given back (%lld ms)",
                  (long long)took);
    else
        exam_tell(e, HF_GRADE_RISK, "session",
                  cluster ? "allow SSUBSCRIBE and PUBSUB SHARDNUMSUB: see docs/acl.md"
                          : "allow SUBSCRIBE and PUBSUB NUMSUB: see docs/acl.md",
                  "a lock was taken and given back, but the server does not see our session: "
                  "waiting is by polling, and a crash costs the whole ttl (P3, P6, P7)");
    hf_lock_free(m);
}

void exam_try(struct exam *e, const char *tag)
{
    hf_error err = { 0 };
    hf_client *c = NULL;
    hf_client_opts o = e->opts;
    /* The members of a quorum are tended by threads, and each of them was looked at already. */
    o.log = e->url->topology == URL_QUORUM ? NULL : on_log;
    o.log_arg = e;
    hf_err code = hf_client_open(e->url_text, &o, &c, &err);
    if (code)
        tell_failure(e, code, &err);
    else
        try_lock(e, c, tag);
    hf_client_free(c);
}

/* ---- all ------------------------------------------------------------------------------------ */

static hf_err greet(void *arg, struct link *l, const struct limit *lim, struct greeted *ret,
                    hf_error *reterr)
{
    (void)arg, (void)l, (void)lim, (void)ret, (void)reterr;
    return HF_OK;
}

static int64_t timeout_of(const struct url *u, const hf_client_opts *o)
{
    return o->timeout_ms > 0 ? o->timeout_ms : u->timeout_ms > 0 ? u->timeout_ms : 5000;
}

const char *exam_topic(hf_err code)
{
    return code == HF_EAUTH ? "rights" : code == HF_ECONFIG ? "url" : "reach";
}

/* Connect as a client would. HF_ECONN and HF_EAUTH have been told. */
static hf_err exam_master(struct exam *e, struct topo *t, hf_error *reterr)
{
    AUTO(mem_freep) struct link *l = mem_zalloc(sizeof *l);
    if (!l || link_init(l) < 0)
        return err_set(reterr, HF_ENOMEM, "out of memory");
    hf_error err = { 0 };
    int64_t begun = clock_now_ms();
    struct limit lim = { .at_ms = begun + e->timeout_ms };
    hf_err code = topo_link(t, hf_str(""), l, &lim, &err);
    if (!code)
        code = exam_ping(e, l, &err);
    if (code == HF_ENOMEM) {
        err_set(reterr, code, "out of memory");
    } else if (code) {
        exam_tell(e, HF_GRADE_FAULT, exam_topic(code), NULL, "%s", err.message);
    } else {
        exam_tell(e, HF_GRADE_FINE, "reach", NULL, "connected and logged in within %lld ms",
                  (long long)(clock_now_ms() - begun));
        exam_server(e, l);
    }
    link_clear(l);
    return code;
}

hf_err hf_doctor_examine(const char *url, const hf_client_opts *opts, hf_doctor_fn each, void *arg,
                         hf_error *reterr)
{
    CALL_GUARD;
    struct exam e = { .each = each, .arg = arg, .url_text = url, .replicas_known = -1 };
    struct topo *t = NULL;
    struct log quiet = { 0 };
    hf_client_opts o;
    if (!each)
        return err_set(reterr, HF_EINVAL, "no function for the findings was given");
    hf_err code = client_opts_of(opts, &o, reterr);
    if (!code)
        code = client_url_of(url, &o, &e.url, reterr);
    if (code)
        return code;
    struct url *u = e.url;
    e.timeout_ms = timeout_of(u, &o);
    e.prefix = client_prefix_of(u, &o);
    e.opts = o;
    code = topo_open(u, e.timeout_ms, greet, NULL, &quiet, &t, reterr); /* u is its own now */
    if (code)
        return code;
    if (u->topology == URL_SENTINEL)
        exam_sentinels(&e);
    snprintf(e.where, sizeof e.where, "%s", topo_shown(t));
    bool cluster = u->topology == URL_CLUSTER;
    code = u->topology == URL_QUORUM ? exam_quorum(&e, reterr)
           : cluster ? exam_cluster(&e, t, reterr) : exam_master(&e, t, reterr);
    snprintf(e.where, sizeof e.where, "%s", topo_shown(t));
    if (!code && !cluster && !e.misplaced)
        exam_try(&e, NULL);
    topo_free(t);
    return code == HF_ENOMEM ? code : HF_OK;
}

hf_err exam_repair(struct exec *x, const char *fence, const char *reign, const char *broken,
                   int64_t timeout_ms, size_t *repaired, hf_error *reterr)
{
    AUTO(op_clear) struct op op = {
        .id = OP_repair, .deadline_ms = clock_now_ms() + timeout_ms,
        .repair = { .counter = hf_str(fence), .reign = hf_str(reign), .aside = hf_str(broken) },
    };
    hf_err code = exec_run(x, &op, reterr);
    if (!code)
        *repaired += op.got.done.code == ANSWER_YES;
    return code;
}

static hf_err repair_one(const struct exam *e, struct exec *x, size_t *repaired, hf_error *reterr)
{
    AUTO(mem_freep) char *fence = keys_reserved(e->prefix, "fence");
    AUTO(mem_freep) char *reign = keys_reserved(e->prefix, "reign");
    AUTO(mem_freep) char *broken = keys_reserved(e->prefix, "fence:broken");
    if (!fence || !reign || !broken)
        return err_set(reterr, HF_ENOMEM, "out of memory");
    return exam_repair(x, fence, reign, broken, e->timeout_ms, repaired, reterr);
}

/* One counter, or in a cluster those of all slots. */
static hf_err repair(struct exam *e, struct topo *t, size_t *repaired, hf_error *reterr)
{
    struct exec *x = exec_new(t, NULL, 0); /* it takes no numbers */
    if (!x)
        return err_set(reterr, HF_ENOMEM, "out of memory");
    hf_err code = e->url->topology == URL_CLUSTER
                      ? exam_counters_repair(e, t, x, repaired, reterr)
                      : repair_one(e, x, repaired, reterr);
    exec_free(x);
    return code;
}

hf_err hf_doctor_repair_fence(const char *url, const hf_client_opts *opts, size_t *ret_repaired,
                              hf_error *reterr)
{
    CALL_GUARD;
    struct exam e = { 0 };
    struct topo *t = NULL;
    struct log quiet = { 0 };
    hf_client_opts o;
    size_t repaired = 0;
    hf_err code = client_opts_of(opts, &o, reterr);
    if (!code)
        code = client_url_of(url, &o, &e.url, reterr);
    if (code)
        return code;
    e.timeout_ms = timeout_of(e.url, &o);
    e.prefix = client_prefix_of(e.url, &o);
    code = topo_open(e.url, e.timeout_ms, greet, NULL, &quiet, &t, reterr);
    if (code)
        return code;
    code = repair(&e, t, &repaired, reterr);
    topo_free(t);
    if (!code && ret_repaired)
        *ret_repaired = repaired;
    return code;
}
