/* SPDX-License-Identifier: MIT
 * exam_quorum.c - is this a place that keeps the promises? The servers of a quorum.
 */
#include "doctor/exam.h"

#include <stdio.h>

#include "base/clock.h"
#include "base/err.h"
#include "base/mem.h"
#include "net/stream.h"

static hf_err exam_member(struct exam *e, const struct url_host *host)
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
    for (size_t i = 0; i < n; i++) {
        hf_err code = exam_member(e, &e->url->hosts[i]);
        if (code == HF_ENOMEM)
            return err_set(reterr, code, "out of memory");
        up += code == HF_OK;
        refused += code == HF_EAUTH;
    }
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
