/* SPDX-License-Identifier: MIT
 * gather.h - looks at all locks, one after the other, in a thread of its own. */
#ifndef CLI_GATHER_H
#define CLI_GATHER_H

#include "scene.h"

#include <pthread.h>
#include <stdatomic.h>

/* One look. stop (or NULL) ends it, with HF_ECANCELED. HF_ECONN, and s->partial: some servers are
 * away, and what the others have is there. */
hf_err gather_look(hf_client *c, const char *pattern, struct scene *s, const atomic_int *stop,
                   hf_error *reterr);

struct gather {
    hf_client  *c;
    const char *pattern; /* NULL: all */
    int64_t     every_ms;
    pthread_mutex_t mu;
    pthread_cond_t  news; /* somebody looks, or looked, or it ends */
    pthread_t   thread;
    int         started;
    atomic_int  stop;
    atomic_llong heard_ms; /* the last sign of the server in a look that is under way; 0: none is */
    struct scene scene;   /* under mu, but for the thread's own reading of it */
    unsigned    looks;    /* that have ended, well or not */
    hf_err      result;   /* of the last one */
    hf_error    error;
    int         watchers; /* it looks while there are any */
    int         paused;
    int         once;     /* look now, whatever else is said */
    void      (*told)(void *arg); /* after each look, with nothing locked; NULL: nobody */
    void       *arg;
};

/* Fill in c, pattern, every_ms, told and arg before. 0, or an exit status after a message. */
int  gather_start(struct gather *g);
/* It ends as soon as the server answers. */
void gather_stop(struct gather *g);
void gather_join(struct gather *g);

/* For how long the server has been silent in a look that is under way; 0: none is. */
int64_t gather_silence_ms(struct gather *g);

/* How many watch it; paused: none of them wants more at present. */
void gather_watch(struct gather *g, int more);
void gather_pause(struct gather *g, int paused);
void gather_every(struct gather *g, int64_t every_ms);
void gather_now(struct gather *g);

#endif
