/* SPDX-License-Identifier: MIT
 * cmd_web.c - holdfast web --listen ADDRESS:PORT: one page that shows all locks, live.
 *
 * It looks at the server only while somebody looks at the page. */
#include "break_call.h"
#include "clock.h"
#include "commands.h"
#include "ending.h"
#include "exitcode.h"
#include "httpd.h"
#include "message.h"
#include "open.h"
#include "web.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

#define EVERY_MS   1000
#define LEAST_MS   200
#define PATIENCE_S 10 /* until a stream says that it is still there */
#define LOOK_MS    8000

static const struct {
    const char *path, *type, *text;
} files[] = {
#define WEB_FILE(path, type, text) { path, type, text },
#include "web.inc"
#undef WEB_FILE
};

struct web {
    struct httpd    httpd;
    struct gather   gather;
    const struct cmd *cmd;
    int             allow_break, token_made;
    pthread_mutex_t mu;
    pthread_cond_t  news;
    char           *state; /* of the last look; under mu, as all below */
    unsigned        looks;
    int             ending;
};

/* ---- looks ---------------------------------------------------------------------------------- */

/* Thread: the gatherer's. */
static void looked(void *arg)
{
    struct web *w = arg;
    pthread_mutex_lock(&w->gather.mu);
    char *state = web_state(&w->gather, w->allow_break);
    pthread_mutex_unlock(&w->gather.mu);
    pthread_mutex_lock(&w->mu);
    free(w->state);
    w->state = state;
    w->looks++;
    pthread_cond_broadcast(&w->news);
    pthread_mutex_unlock(&w->mu);
}

/* Holds: mu, released while it waits. Until there is a later look than that, or ms have passed. */
static void await_look(struct web *w, unsigned seen, int64_t ms)
{
    struct timespec until;
    clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_sec += ms / 1000;
    until.tv_nsec += ms % 1000 * 1000000;
    if (until.tv_nsec >= 1000000000) {
        until.tv_nsec -= 1000000000;
        until.tv_sec++;
    }
    while (w->looks == seen && !w->ending)
        if (pthread_cond_timedwait(&w->news, &w->mu, &until) != 0)
            return;
}

/* ---- server-sent events --------------------------------------------------------------------- */

struct stream {
    struct web *web;
    unsigned    seen;
};

static char *event_of(const char *state, size_t *ret_len)
{
    static const char begin[] = "event: state\ndata: ", end[] = "\n\n";
    size_t n = strlen(state), at = sizeof begin - 1;
    char *text = malloc(at + n + sizeof end);
    if (!text)
        return NULL;
    memcpy(text, begin, at);
    memcpy(text + at, state, n);
    memcpy(text + at + n, end, sizeof end);
    *ret_len = at + n + sizeof end - 1;
    return text;
}

/* Thread: of the connection. */
static char *stream_next(void *arg, size_t *ret_len)
{
    static const char still[] = ": still here\n\n";
    struct stream *s = arg;
    struct web *w = s->web;
    char *text = NULL;
    pthread_mutex_lock(&w->mu);
    if (w->looks == s->seen)
        await_look(w, s->seen, PATIENCE_S * 1000);
    if (!w->ending && w->looks != s->seen && w->state) {
        text = event_of(w->state, ret_len);
        s->seen = w->looks;
    } else if (!w->ending) {
        text = strdup(still);
        *ret_len = sizeof still - 1;
    }
    pthread_mutex_unlock(&w->mu);
    return text;
}

/* Thread: of the connection. */
static void stream_over(void *arg)
{
    struct stream *s = arg;
    gather_watch(&s->web->gather, -1);
    free(s);
}

static void answer_events(struct web *w, struct http_answer *ret)
{
    struct stream *s = calloc(1, sizeof *s);
    if (!s) {
        http_text(ret, 500, "out of memory");
        return;
    }
    s->web = w;
    pthread_mutex_lock(&w->mu);
    s->seen = w->looks; /* what was seen before is old */
    pthread_mutex_unlock(&w->mu);
    *ret = (struct http_answer){ .status = 200, .type = "text/event-stream", .next = stream_next,
                                 .over = stream_over, .arg = s };
    gather_watch(&w->gather, 1);
    gather_now(&w->gather);
}

/* ---- one answer ----------------------------------------------------------------------------- */

static void answer_state(struct web *w, struct http_answer *ret)
{
    gather_watch(&w->gather, 1);
    pthread_mutex_lock(&w->mu);
    unsigned seen = w->looks;
    pthread_mutex_unlock(&w->mu);
    gather_now(&w->gather);
    pthread_mutex_lock(&w->mu);
    await_look(w, seen, LOOK_MS);
    char *text = w->looks != seen && w->state ? strdup(w->state) : NULL;
    pthread_mutex_unlock(&w->mu);
    gather_watch(&w->gather, -1);
    if (!text) {
        http_text(ret, 503, "The lock server does not answer.");
        return;
    }
    *ret = (struct http_answer){ .status = 200, .type = "application/json", .body = text,
                                 .len = strlen(text) };
}

static int hex_digit(char c)
{
    return c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

/* The name in a request, as bytes: "name", or "name_hex". 0: there is none. */
static size_t name_in(const json_t *o, char name[HF_NAME_MAX])
{
    const char *hex = json_string_value(json_object_get(o, "name_hex"));
    const json_t *text = json_object_get(o, "name");
    size_t n = hex ? strlen(hex) / 2 : json_string_length(text);
    if (n == 0 || n > HF_NAME_MAX || (hex && strlen(hex) % 2))
        return 0;
    for (size_t i = 0; i < n; i++) {
        int high = hex ? hex_digit(hex[2 * i]) : 0, low = hex ? hex_digit(hex[2 * i + 1]) : 0;
        if (high < 0 || low < 0)
            return 0;
        name[i] = hex ? (char)(16 * high + low) : json_string_value(text)[i];
    }
    return n;
}

static void say(struct http_answer *ret, unsigned status, int done, const char *words)
{
    json_t *o = json_object();
    json_object_set_new(o, "done", json_boolean(done));
    json_object_set_new(o, "said", json_bytes(words, strlen(words)));
    char *text = json_dumps(o, JSON_COMPACT | JSON_ENSURE_ASCII);
    json_decref(o);
    *ret = (struct http_answer){ .status = status, .type = "application/json", .body = text,
                                 .len = text ? strlen(text) : 0 };
}

static void answer_break(struct web *w, const struct http_ask *ask, struct http_answer *ret)
{
    char name[HF_NAME_MAX], said[BREAK_SAID];
    if (!w->allow_break || !ask->token) {
        say(ret, 403, 0, "Locks cannot be broken from here: that needs --allow-break and the "
                         "token.");
        return;
    }
    json_t *o = json_loadb(ask->body, ask->body_len, 0, NULL);
    size_t len = name_in(o, name);
    json_int_t fence = json_integer_value(json_object_get(o, "fence"));
    if (len == 0 || fence <= 0) {
        say(ret, 400, 0, "A break needs the lock's name and its fencing number.");
    } else {
        hf_bytes bytes = { name, len };
        hf_err e = break_call(w->gather.c, bytes, (uint64_t)fence, "from holdfast web", said);
        say(ret, e ? 409 : 200, !e, said);
        gather_now(&w->gather);
    }
    json_decref(o);
}

static int answer_file(const char *path, struct http_answer *ret)
{
    for (size_t i = 0; i < sizeof files / sizeof files[0]; i++)
        if (strcmp(files[i].path, path) == 0) {
            *ret = (struct http_answer){ .status = 200, .type = files[i].type,
                                         .body = strdup(files[i].text),
                                         .len = strlen(files[i].text) };
            if (!ret->body)
                http_text(ret, 500, "out of memory");
            return 1;
        }
    return 0;
}

/* Thread: of the connection. */
static void answer(const struct http_ask *ask, struct http_answer *ret, void *arg)
{
    struct web *w = arg;
    int post = strcmp(ask->method, "POST") == 0;
    if (post != (strcmp(ask->path, "/api/break") == 0))
        http_text(ret, post ? 404 : 405, post ? "There is nothing here." : "That is a POST.");
    else if (post)
        answer_break(w, ask, ret);
    else if (strcmp(ask->path, "/api/events") == 0)
        answer_events(w, ret);
    else if (strcmp(ask->path, "/api/state") == 0)
        answer_state(w, ret);
    else if (!answer_file(ask->path, ret))
        http_text(ret, 404, "There is nothing here.");
}

/* ---- the command ---------------------------------------------------------------------------- */

static void ready(void *arg)
{
    const struct web *w = arg;
    printf("http://%s/%s%s\n", w->httpd.shown, w->token_made ? "#token=" : "",
           w->token_made ? w->httpd.token : "");
    fflush(stdout);
}

static void stop(void *arg)
{
    struct web *w = arg;
    pthread_mutex_lock(&w->mu);
    w->ending = 1;
    pthread_cond_broadcast(&w->news);
    pthread_mutex_unlock(&w->mu);
    gather_stop(&w->gather);
    ending_in(5000, EX_OKAY, NULL);
}

/* The page itself has no secrets: it asks for the token. */
static const char *open_paths[sizeof files / sizeof files[0] + 1];

static int begin(struct web *w, const struct opts *o)
{
    pthread_condattr_t attr;
    int code = httpd_init(&w->httpd, w->cmd, o);
    if (!code && o->allow_break) {
        w->token_made = !w->httpd.token[0];
        code = httpd_make_token(&w->httpd);
    }
    for (size_t i = 0; i < sizeof files / sizeof files[0]; i++)
        open_paths[i] = files[i].path;
    w->httpd.open = open_paths;
    w->allow_break = o->allow_break;
    pthread_mutex_init(&w->mu, NULL);
    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_cond_init(&w->news, &attr);
    pthread_condattr_destroy(&attr);
    w->gather.every_ms = o->every_ms != GIVEN_NOT ? o->every_ms : EVERY_MS;
    w->gather.told = looked;
    w->gather.arg = w;
    return code ? code : client_open(o, NULL, &w->gather.c);
}

int cmd_web(const struct cmd *cmd, struct opts *o, int argc, char **argv)
{
    static struct web w;
    (void)argv;
    if (argc)
        return usage_error(cmd, "nothing can be named here: it shows all locks under the prefix");
    if (o->every_ms != GIVEN_NOT && o->every_ms < LEAST_MS)
        return usage_error(cmd, "--every must be 200ms or more");
    w.cmd = cmd;
    int code = begin(&w, o);
    if (!code)
        code = gather_start(&w.gather);
    if (!code)
        code = httpd_run(&w.httpd, cmd, answer, ready, stop, &w);
    if (w.gather.c)
        ending_in(1000, code, NULL);
    gather_join(&w.gather);
    client_close(w.gather.c);
    explicit_bzero(w.httpd.token, sizeof w.httpd.token);
    free(w.state);
    return code;
}
