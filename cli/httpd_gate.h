/* SPDX-License-Identifier: MIT
 * httpd_gate.h - where an HTTP server listens, and whom it answers: for httpd.c. */
#ifndef CLI_HTTPD_GATE_H
#define CLI_HTTPD_GATE_H

#include "httpd.h"

/* "127.0.0.1:8010", "[::1]:8010", "localhost:8010", or a port alone, which is on 127.0.0.1. 0 is
 * any port that is free. -1: it is none of these. */
int gate_address(struct httpd *h, const char *text);

/* The first line of file, which nobody else may read. 0, or an exit status after a message. */
int gate_token(struct httpd *h, const char *file);

/* Whether host is a name that leads to us: an address, localhost, this machine's own name, --host. */
int gate_host(const struct httpd *h, const char *host);

/* Whether an Origin header is ours: a page that came from the same host and port. */
int gate_origin(const char *origin, const char *host);

/* Whether an Authorization header carries the token. It takes as long whether or not it does. */
int gate_bearer(const struct httpd *h, const char *authorization);

/* "127.0.0.1:8010" */
void gate_show(const struct httpd *h, char *buf, size_t size);

#endif
