/* SPDX-License-Identifier: MIT
 * cmd_exporter.c - holdfast exporter [PATTERN]: metrics of the locks, for Prometheus. */
#include "clock.h"
#include "commands.h"
#include "exitcode.h"
#include "httpd.h"
#include "message.h"
#include "open.h"
#include "scrape.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define FRESH_MS 500 /* who asks more often than that gets the same answer */

struct exporter {
    struct httpd    http;
    hf_client      *c;
    const char     *pattern;
    size_t          max_locks;
    pthread_mutex_t mu; /* guards the rest: one at a time looks at the server */
    char           *text;
    size_t          len;
    int64_t         made_ms;
};

/* Thread: of the connection. */
static void give_metrics(struct exporter *x, struct http_answer *ret)
{
    pthread_mutex_lock(&x->mu);
    if (!x->text || clock_now_ms() - x->made_ms >= FRESH_MS) {
        free(x->text);
        x->text = scrape(x->c, x->pattern, x->max_locks, &x->len);
        x->made_ms = clock_now_ms();
    }
    ret->body = x->text ? malloc(x->len + 1) : NULL;
    if (ret->body)
        memcpy(ret->body, x->text, x->len + 1);
    ret->len = x->len;
    pthread_mutex_unlock(&x->mu);
    ret->type = "text/plain; version=0.0.4; charset=utf-8";
    if (!ret->body)
        http_text(ret, 500, "Out of memory.");
}

/* Thread: of the connection. */
static void answer(const struct http_ask *ask, struct http_answer *ret, void *arg)
{
    struct exporter *x = arg;
    if (strcmp(ask->method, "GET") != 0)
        http_text(ret, 405, "Only GET is answered.");
    else if (strcmp(ask->path, "/metrics") == 0)
        give_metrics(x, ret);
    else if (strcmp(ask->path, "/") == 0)
        http_text(ret, 200, "holdfast exporter: the metrics are at /metrics");
    else
        http_text(ret, 404, "The metrics are at /metrics.");
}

static void ready(void *arg)
{
    const struct exporter *x = arg;
    printf("http://%s/metrics\n", x->http.shown);
    fflush(stdout);
}

static int print_once(struct exporter *x)
{
    size_t len = 0;
    char *text = scrape(x->c, x->pattern, x->max_locks, &len);
    int code = text ? 0 : EX_SYSTEM;
    if (text && strstr(text, "\nholdfast_up 0\n"))
        code = EX_SERVER;
    if (text)
        fwrite(text, 1, len, stdout);
    else
        msg_error("out of memory");
    free(text);
    return code;
}

int cmd_exporter(const struct cmd *cmd, struct opts *o, int argc, char **argv)
{
    struct exporter x = { .mu = PTHREAD_MUTEX_INITIALIZER, .pattern = argc ? argv[0] : NULL };
    if (argc > 1)
        return usage_error(cmd, "one pattern at most: quote it, so that the shell does not "
                                "expand it");
    if (o->max_locks > SCRAPE_LOCKS_MAX)
        return usage_error(cmd, "--max-locks is at most %d", SCRAPE_LOCKS_MAX);
    if (o->one_scrape && o->listen)
        return usage_error(cmd, "--once and --listen cannot be used together");
    x.max_locks = o->max_locks ? (size_t)o->max_locks : SCRAPE_LOCKS_DEFAULT;
    int code = o->one_scrape ? 0 : httpd_init(&x.http, cmd, o);
    if (code == 0)
        code = client_open(o, NULL, &x.c);
    if (code == 0)
        code = o->one_scrape ? print_once(&x) : httpd_run(&x.http, cmd, answer, ready, NULL, &x);
    free(x.text);
    client_close(x.c);
    return code;
}
