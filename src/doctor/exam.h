/* SPDX-License-Identifier: MIT
 * exam.h - what the files of the diagnosis share.
 */
#ifndef DOCTOR_EXAM_H
#define DOCTOR_EXAM_H

#include "exec/exec.h"
#include "net/link.h"
#include "net/url.h"
#include "topo/slot.h"
#include "topo/topo.h"

struct exam {
    struct url   *url;
    const char   *url_text;          /* what the caller gave; NULL: nothing */
    hf_client_opts opts;
    const char   *prefix;
    hf_doctor_fn each;
    void         *arg;
    int64_t       timeout_ms;
    char          where[300];
    int           replicas_known;    /* of the Sentinels or the cluster; -1: nobody knows how many
                                        there should be */
    long long     replicas_now;      /* connected to the master; -1: not known */
    int64_t       clock_ms;          /* the master's wall clock less ours */
    bool          clock_known;
    char          version[48];       /* of the master; "": not known */
    int           version_number;    /* major * 10000 + minor * 100 + patch */
    char          other_version[48]; /* one that a replica of its has instead; "": none has */
    bool          misplaced;         /* the URL is of another kind than the server */
};

/* Tell a finding about e->where. advice may be NULL. */
void exam_tell(struct exam *e, hf_grade grade, const char *topic, const char *advice,
               const char *fmt, ...) __attribute__((format(printf, 5, 6)));

/* Of what kind the trouble is that kept us from a server: reach, rights or url. */
const char *exam_topic(hf_err code);

/* Whether a server answers, as what it should be: a connection alone says nothing. Its refusal, or
 * why there is no answer. */
hf_err exam_ping(struct exam *e, struct link *l, hf_error *reterr);

/* One command; NULL: no answer, or an error, which *ret_refused (may be NULL) tells. To be
 * freed. */
struct reply *exam_ask(struct exam *e, struct link *l, const char *const *words, int n,
                       bool *ret_refused);

/* What INFO says; NULL: nothing. To be freed. */
struct reply *exam_info(struct exam *e, struct link *l, const char *section);
/* The text behind "name:" at the beginning of a line; "": it is not there. Returns buf. */
const char *exam_field(const struct reply *info, const char *name, char *buf, size_t size);
/* A setting; "": we may not ask. Returns buf. */
const char *exam_setting(struct exam *e, struct link *l, const char *name, char *buf, size_t size);
/* Whether repair.lua would leave alone what stands in a counter. */
bool exam_is_counter(const char *text);
/* How far a number is ahead of the master's clock. */
int64_t exam_ahead_ms(const struct exam *e, const char *number);

/* A lock, taken and given back by a client of its own. tag decides its slot; NULL: there are
 * none. */
void exam_try(struct exam *e, const char *tag);

/* The master behind l; then its replicas, which are connected to. */
void exam_server(struct exam *e, struct link *l);
/* Who else may use the channels of sessions there, if we may know. */
void exam_users(struct exam *e, struct link *l);
void exam_sentinels(struct exam *e);
/* Each server of a quorum. HF_ENOQUORUM, which has been told; HF_ENOMEM. */
hf_err exam_quorum(struct exam *e, hf_error *reterr);

/* ---- a cluster ---- */

/* Each master of it, with a lock for a try. What cannot be reached has been told. HF_ENOMEM. */
hf_err exam_cluster(struct exam *e, struct topo *t, hf_error *reterr);

#define EXAM_NODES_MAX    1024
#define EXAM_SUSPECTS_MAX 32

/* What the nodes say about one another and about the slots. */
struct exam_nodes {
    unsigned asked;               /* how many told */
    bool     silent;              /* this user may not ask */
    uint64_t owners;              /* a sum over who owns which slot, by the first that told */
    bool     differ;              /* another one said something else */
    unsigned char moving[SLOT_COUNT];
    struct suspect {
        char     id[48], address[80];
        bool     failed;          /* by more than a suspicion */
        unsigned by;              /* how many call it down */
    } suspect[EXAM_SUSPECTS_MAX];
    unsigned suspects;
};

/* Ask the node behind l; *ret_down: it says that the cluster is down. Sets e->replicas_known. */
void exam_nodes(struct exam *e, struct link *l, struct exam_nodes *ns, bool *ret_down);
/* Tell about what they said, all of them. */
void exam_nodes_tell(struct exam *e, const struct exam_nodes *ns);
/* Slots of a kind as text: "7, 100-199 and 3 more". Returns buf. */
const char *exam_slots(const unsigned char *slots, unsigned char kind, char *buf, size_t size,
                       unsigned *ret_count);

/* Each slot's counter at the master that the cluster calls number (cluster_place()). HF_ENOMEM. */
hf_err exam_counters(struct exam *e, struct topo *t, int number, struct link *l);
/* Repair those that need it, everywhere; *repaired is raised by how many. x carries that out on t.
 * As hf_doctor_repair_fence(). */
hf_err exam_counters_repair(struct exam *e, struct topo *t, struct exec *x, size_t *repaired,
                            hf_error *reterr);
/* Repair one, if it needs it. */
hf_err exam_repair(struct exec *x, const char *fence, const char *reign, const char *broken,
                   int64_t timeout_ms, size_t *repaired, hf_error *reterr);

#endif
