/* SPDX-License-Identifier: MIT
 * open.c - a client from the options. */
#include "open.h"

#include "clock.h"
#include "ending.h"
#include "exitcode.h"
#include "message.h"
#include "secrets.h"

#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define CLOSE_MS 1000
#define LATE_MS  450 /* what -w D may take on top of D */

/* Thread: any of the library's. */
static void log_line(void *arg, hf_log level, const char *message)
{
    (void)arg;
    /* What the library mends by itself is not the user's business unless asked for. */
    int wanted = level <= HF_LOG_WARNING ? 0 : level == HF_LOG_INFO ? 1 : 2;
    if (msg_verbosity() >= wanted)
        msg_error("%s", message);
}

static hf_err try_within(const struct opts *o, const char *program, int64_t wait_ms,
                         hf_client **ret, hf_error *reterr)
{
    hf_client_opts co = { .size = sizeof co,
                          .prefix = o->prefix,
                          .program = program,
                          .info = o->info,
                          .replicas = o->replicas,
                          .log = log_line,
                          .protocol = o->protocol,
                          .history = (int)o->history,
                          .wait_ms = wait_ms };
    ending_on_signal();
    hf_err e = hf_client_open(o->url, &co, ret, reterr);
    ending_off();
    if (e != HF_OK)
        return e;
    secrets_hide_env();
    msg_server(hf_client_url(*ret));
    msg_verbose("connected to %s", hf_client_url(*ret));
    return HF_OK;
}

static int open_within(const struct opts *o, const char *program, int64_t wait_ms, hf_client **ret)
{
    hf_error err;
    hf_err e = try_within(o, program, wait_ms, ret, &err);
    return e ? msg_failed(e, &err) : 0;
}

hf_err client_try(const struct opts *o, hf_client **ret, hf_error *reterr)
{
    return try_within(o, NULL, 0, ret, reterr);
}

int client_open(const struct opts *o, const char *program, hf_client **ret)
{
    return open_within(o, program, 0, ret);
}

int client_await(const struct opts *o, const char *program, hf_client **ret)
{
    return open_within(o, program, options_wait_ms(o), ret);
}

/* The library itself bears an outage for a while; the user may have more patience. */
int client_again(const struct opts *o, hf_err e)
{
    struct timespec moment = { .tv_nsec = 200000000 };
    int64_t wait = options_wait_ms(o);
    if ((e != HF_ECONN && e != HF_EUNSURE && e != HF_ENOQUORUM) || (wait >= 0 && wait < 200))
        return 0;
    nanosleep(&moment, NULL);
    return 1;
}

void client_limit(const struct opts *o, const hf_client *c, const char *what)
{
    char words[TEXT_ESCAPED(1024) + 600], waited[32];
    if (o->nonblock || o->wait_ms == GIVEN_NOT)
        return;
    text_escape(words, TEXT_ESCAPED(1024), what, strlen(what));
    snprintf(words + strlen(words), 600,
             " not obtained within %s: the server does not answer (%s)",
             text_duration(waited, sizeof waited, o->wait_ms), hf_client_url(c));
    ending_at(o->asked_ms + o->wait_ms + LATE_MS, EX_SERVER, words);
}

hf_err client_answers(hf_client *c, const char *name, hf_err e, hf_error *err)
{
    hf_inspect_info *info = NULL;
    hf_error why;
    hf_err asked = hf_inspect_lock(c, hf_str(name), LATE_MS / 2, &info, &why);
    hf_inspect_free(info);
    if (asked == HF_OK)
        return e;
    *err = why;
    return asked;
}

void client_leave(const struct opts *o, int code)
{
    int64_t ms = o->nonblock || o->wait_ms == GIVEN_NOT
                     ? CLOSE_MS : o->asked_ms + o->wait_ms + LATE_MS - clock_now_ms();
    ending_in(ms < CLOSE_MS ? ms : CLOSE_MS, code, NULL);
}

hf_client *client_close(hf_client *c)
{
    if (c)
        (void)hf_client_close(c, CLOSE_MS, NULL);
    return NULL;
}

void client_tell_default(const struct opts *o)
{
    char url[4096] = "";
    if (o->url || msg_verbosity() < 0 || !isatty(STDERR_FILENO))
        return;
    if (hf_url_default(url, sizeof url, NULL) == HF_OK && !url[0])
        msg_note("no server is named, so this lock is for this user on this machine only (see "
                 "--url; HOLDFAST_URL=embedded: says that it is meant)");
    explicit_bzero(url, sizeof url);
}
