/* SPDX-License-Identifier: MIT
 * answer.h - what scripts answer, and lists in it.
 */
#ifndef OP_ANSWER_H
#define OP_ANSWER_H

#include <stdbool.h>
#include <stdint.h>

#include "net/resp.h"

/* The first number of a refusal; the scripts say the same. */
enum answer {
    ANSWER_NOT_A_TIMESTAMP = -9, /* held by a program of another protocol */
    ANSWER_OVER_LIMIT = -8,      /* more than the limit was asked for */
    ANSWER_OTHER_LIMIT = -7,     /* others agreed on another limit */
    ANSWER_HANDED_OVER = -6,     /* to this token, before: to be claimed */
    ANSWER_NO_INFO = -5,         /* hello: INFO is not allowed to this user */
    ANSWER_OTHER_PARTIES = -5,   /* barriers: others wait for another number of parties */
    ANSWER_BAD_COUNTER = -4,     /* the counter holds something else */
    ANSWER_USED_UP = -4,         /* sequences: there are not so many left */
    ANSWER_WRONG_TYPE = -3,      /* the key holds something else */
    ANSWER_GIVEN_UP = -2,        /* this token was given up; the generation waited for is over */
    ANSWER_BUSY = -1,            /* held by another; still counting down; nothing there */
    ANSWER_NO = 0,
    ANSWER_YES = 1,
};

/* The reply to PTTL, where it is no time. */
enum { PTTL_ENDLESS = -1, PTTL_NO_KEY = -2 };

/* Elements of a reply, which op.reply keeps. */
struct op_list {
    const struct reply *rp; /* NULL: none */
};
static inline size_t op_list_len(struct op_list l)
{
    return l.rp ? l.rp->len : 0;
}
/* Bytes, always followed by a NUL; empty where there are none. */
static inline hf_bytes op_list_at(struct op_list l, size_t i)
{
    const struct reply *rp = i < op_list_len(l) ? l.rp->item[i] : NULL;
    return rp && rp->str ? (hf_bytes){ rp->str, rp->len } : (hf_bytes){ "", 0 };
}
/* An integer; otherwise where there is none. */
static inline long long op_list_number(struct op_list l, size_t i, long long otherwise)
{
    const struct reply *rp = i < op_list_len(l) ? l.rp->item[i] : NULL;
    return rp && rp->type == REPLY_INT ? rp->num : otherwise;
}

#endif
