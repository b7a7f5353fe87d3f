/* SPDX-License-Identifier: MIT
 * diagnose.h - what the files of the diagnosis share.
 */
#ifndef LOCK_DIAGNOSE_H
#define LOCK_DIAGNOSE_H

#include "net/link.h"
#include "net/url.h"

struct exam {
    struct url   *url;
    const char   *prefix;
    hf_finding_fn each;
    void         *arg;
    int64_t       timeout_ms;
    char          where[300];
    int           replicas_known;    /* of the Sentinels; -1: nobody knows how many there should be */
    int64_t       clock_ms;          /* the master's wall clock less ours */
    bool          clock_known;
};

/* Tell a finding about e->where. advice may be NULL. */
void exam_tell(struct exam *e, hf_grade grade, const char *topic, const char *advice,
               const char *fmt, ...) __attribute__((format(printf, 5, 6)));

/* One command; NULL: no answer, or an error, which *ret_refused (may be NULL) tells. To be freed. */
struct reply *exam_ask(struct exam *e, struct link *l, const char *const *words, int n,
                       bool *ret_refused);

/* The master behind l; then its replicas, which are connected to. */
void exam_server(struct exam *e, struct link *l);
void exam_sentinels(struct exam *e);
/* Each server of a quorum. HF_ENOQUORUM, which has been told; HF_ENOMEM. */
hf_err exam_quorum(struct exam *e, hf_error *reterr);

#endif
