/* SPDX-License-Identifier: MIT
 * server.h - real servers for tests: each on its own unix socket, gone when the test ends.
 *
 *     struct server *s = server_start(NULL);
 *     ... hf_client_open(server_url(s), ...) ...
 *     CHECK_STR(server_ask(s, "GET lock:a"), NULL);
 *
 * redis-server, or what $HF_TEST_SERVER names, else valkey-server. What goes wrong here fails the
 * test. Strings returned live until the test ends. Questions go over a connection of the
 * harness's own, through hiredis, so they do not depend on the code under test; any thread or
 * forked worker may ask. Start servers from the main thread: they die with the thread that did.
 */
#ifndef HARNESS_SERVER_H
#define HARNESS_SERVER_H

#include <stddef.h>
#include <stdint.h>

struct server;

/* A network namespace, as a descriptor, and the address of whoever is in it: net.h. */
struct place {
    int ns;
    const char *host;
};

struct server_opts {
    int aof;                 /* append-only file, as the embedded server has it */
    int tcp;                 /* also a free port on 127.0.0.1: server_tcp_url() */
    int tls;                 /* also a TLS port, certificates in t_dir()/tls: server_tls_url() */
    int clockshim;           /* server_clock_shift() works */
    int diskshim;            /* server_disk_delay() works */
    const char *program;     /* another one than the rest of the test uses */
    const char *requirepass; /* not part of the URLs */
    const char *sentinel;    /* not NULL: a Sentinel, with these lines of configuration */
    const char *cluster;     /* not NULL: a node of a Cluster, with these lines of nodes.conf */
    int port;                /* not 0: this one, for tcp or tls, rather than a free one */
    const struct place *place; /* not NULL: there, and not on 127.0.0.1 */
    int no_wait;             /* return at once; server_await() before anything else */
    const char *const *args; /* more arguments, NULL at the end; NULL: none */
};

struct server *server_start(const char *const *args); /* args may be NULL */
struct server *server_start_opts(const struct server_opts *opts);

/* Wait for a server that was started with no_wait. 0: it answers; -1: it has ended by itself, as
 * one does whose port was taken meanwhile. */
int server_await(struct server *s);

const char *server_url(const struct server *s);     /* unix:///... */
const char *server_socket(const struct server *s);  /* the path alone */
const char *server_tcp_url(const struct server *s); /* redis://HOST:PORT */
const char *server_tls_url(const struct server *s); /* rediss://...?cacert=t_dir()/tls/ca.crt */
const char *server_host(const struct server *s);    /* 127.0.0.1, or that of its place */
int server_port(const struct server *s);            /* the TCP port, else the TLS port, else 0 */
int server_pid(const struct server *s);             /* 0: it was killed */

/* Make t_dir()/tls/{ca,server,client}.{crt,key}, once. Signed by ca; server is for 127.0.0.1 and
 * localhost. Also other.crt: a CA that signed nothing. Returns the folder. */
const char *server_make_certs(void);

/* Give a Sentinel other lines of configuration, and start it anew with them. */
void server_set_sentinel(struct server *s, const char *lines);

/* ---- faults ---- */
void server_kill(struct server *s);    /* SIGKILL, and wait until it is gone */
/* From its next start on it follows nobody, as one that the Sentinels have made the master. */
void server_lead(struct server *s);
void server_restart(struct server *s); /* same socket, ports and folder; data only with aof */
void server_empty(struct server *s);   /* the same, but its data is gone, whatever it keeps */
/* Killed, the last bytes of its append-only file cut off, and started again. 1: its log says so. */
int server_tear(struct server *s, int bytes);
void server_freeze(struct server *s);  /* SIGSTOP, and wait until it stands still */
void server_thaw(struct server *s);
int server_is_frozen(const struct server *s);
/* Move the server's wall clock to real time plus ms (may be negative); needs opts.clockshim. */
void server_clock_shift(struct server *s, int64_t ms);
/* Let every fdatasync() take ms longer from now on, at least; -1: hang until this is called again.
 * And how many did so far. Needs opts.diskshim. */
void server_disk_delay(struct server *s, int ms);
int server_disk_delayed(const struct server *s);

/* ---- which program ---- */
/* Where this program is on $PATH; NULL: it is not installed. */
const char *server_program(const char *name);
/* The test ends here, left out, unless the program is as new as that: 702 is 7.2. */
void server_needs(int version, const char *what);
/* Does the program that the test uses know this command? */
int server_knows(const char *command);
/* What the test would use anyway, if it knows this command; else, unless $HF_TEST_SERVER names one,
 * the valkey-server that is installed: then all that is started from now on is that one. NULL: it
 * does not know it either, or is not there. */
const char *server_use_one_that_knows(const char *command);

/* ---- questions ---- */
/* The reply to a command in hiredis's format ("SET %s %b", key, data, len) as text: nil is NULL,
 * an error its message, an array its elements with a newline after each but the last. */
const char *server_ask(struct server *s, const char *fmt, ...);
const char *server_ask_bytes(struct server *s, size_t *ret_len, const char *fmt, ...);
long long server_int(struct server *s, const char *fmt, ...); /* fails unless it is an integer */
/* Every key of db 0, sorted, one per line: "" when nothing was left behind. */
const char *server_keys(struct server *s);
const char *server_keys_but(struct server *s, const char *prefix); /* without those */
const char *server_log(struct server *s);
/* A field of INFO as text, for example "total_commands_processed"; NULL when there is none. */
const char *server_info(struct server *s, const char *field);

/* MONITOR: everything the server executed since start or clear, one line each, complete up to the
 * moment of the call. The harness's own questions are part of it. */
void server_monitor_start(struct server *s);
const char *server_monitor_text(struct server *s);
void server_monitor_clear(struct server *s);
/* How many lines contain part. */
int server_monitor_count(struct server *s, const char *part);

#endif
