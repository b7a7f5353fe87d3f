/* SPDX-License-Identifier: MIT
 * open.c - a client from the options. */
#include "open.h"

#include "message.h"
#include "secrets.h"

#include <string.h>
#include <unistd.h>

/* Thread: any of the library's. */
static void log_line(void *arg, hf_log level, const char *message)
{
    (void)arg;
    /* What the library mends by itself is not the user's business unless asked for. */
    int wanted = level <= HF_LOG_WARNING ? 0 : level == HF_LOG_INFO ? 1 : 2;
    if (msg_verbosity() >= wanted)
        msg_error("%s", message);
}

int client_open(const struct opts *o, const char *program, hf_client **ret)
{
    hf_client_opts co = { .size = sizeof co,
                          .prefix = o->prefix,
                          .program = program,
                          .info = o->info,
                          .replicas = o->replicas,
                          .log = log_line,
                          .protocol = o->protocol };
    hf_error err;
    hf_err e = hf_client_open(o->url, &co, ret, &err);
    if (e != HF_OK)
        return msg_failed(e, &err);
    secrets_hide_env();
    msg_verbose("connected to %s", hf_client_url(*ret));
    return 0;
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
