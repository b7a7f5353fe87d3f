/* SPDX-License-Identifier: MIT
 * fleet.h - one master, two replicas, three Sentinels, for tests.
 *
 *     struct fleet *f = fleet_start(NULL);
 *     hf_client *c = client_at(f->url, 0);
 *     server_kill(fleet_master(f));
 *     struct server *now = fleet_wait_switch(f, old);
 *
 * All on 127.0.0.1, ports picked free; they know one another from the beginning, so that no test
 * waits for what Sentinels find out by themselves. The servers keep an append-only file.
 */
#ifndef HARNESS_FLEET_H
#define HARNESS_FLEET_H

#include "harness/server.h"

enum { FLEET = 3 };

struct fleet_opts {
    int tls;                   /* all of them, and nothing but TLS */
    int memory_only;           /* no append-only file */
    int diskshim;              /* server_disk_delay() works */
    const char *requirepass;   /* of the servers */
    const char *sentinel_pass; /* of the Sentinels */
    int down_after_ms;         /* 0: 400 */
    const struct place *place; /* not NULL: the servers' places, then the Sentinels' */
    int no_sentinels;          /* only the servers; url is the master's */
    const char *const *args;   /* more arguments of the servers, NULL at the end; NULL: none */
};

struct fleet {
    struct server *node[FLEET]; /* the first one is the master at first */
    struct server *sentinel[FLEET];
    const char    *hosts;       /* 127.0.0.1:P1,127.0.0.1:P2,127.0.0.1:P3 */
    const char    *url;         /* redis+sentinel://HOSTS/m, or rediss+ and ?cacert= */
};

struct fleet *fleet_start(const struct fleet_opts *opts); /* opts may be NULL */

/* Whom a Sentinel names (the first one that answers; never a lying one). */
struct server *fleet_named_by(struct fleet *f, int sentinel);
struct server *fleet_master(struct fleet *f);
/* Whom two Sentinels name, if it is another one than old, and says that it is a master; or NULL. */
struct server *fleet_switched(struct fleet *f, struct server *old);
struct server *fleet_wait_switch(struct fleet *f, struct server *old); /* Wait for that. */
/* Wait until this many replicas follow the master. */
void fleet_wait_replicas(struct fleet *f, int n);

#endif
