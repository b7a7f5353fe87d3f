/* SPDX-License-Identifier: MIT
 * cmd_server.c - holdfast server start|stop|status: the embedded server, by hand. */
#include "commands.h"
#include "embedded.h"
#include "exitcode.h"
#include "message.h"
#include "open.h"
#include "platform.h"
#include "output.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The folder of "embedded:DIR?options" into *ret, to be freed; NULL: the user's own. */
static int dir_of(const struct cmd *cmd, const char *url, char **ret)
{
    int is = embedded_dir(url, ret);
    if (is == 0)
        return usage_error(cmd, "only the embedded server can be started and stopped here, but the "
                           "URL (--url, $HOLDFAST_URL or /etc/holdfast.conf) does not begin with "
                           "embedded:");
    if (is > 0)
        return 0;
    msg_error("out of memory");
    return EX_SYSTEM;
}

static int server_dir(const struct cmd *cmd, const struct opts *o, char **ret)
{
    char url[4096] = "";
    hf_error err;
    *ret = NULL;
    if (o->url && !*o->url) {
        msg_error("the URL (--url) is empty: leave it out, or say embedded:");
        return EX_SETTINGS;
    }
    hf_err e = o->url ? HF_OK : hf_url_default(url, sizeof url, &err);
    int code = e ? msg_failed(e, &err) : dir_of(cmd, o->url ? o->url : url, ret);
    explicit_bzero(url, sizeof url);
    return code;
}

static void print(const struct opts *o, const hf_server_info *i)
{
    char t[32], dir[TEXT_ESCAPED(sizeof i->dir) + 8], sock[TEXT_ESCAPED(sizeof i->socket) + 8];
    if (o->output != OUT_TABLE) {
        json_t *j = json_object();
        int on = i->running;
        json_object_set_new(j, "running", json_boolean(on));
        json_object_set_new(j, "pid", on ? json_integer(i->pid) : json_null());
        json_object_set_new(j, "uptime_s", on ? json_integer(i->uptime_s) : json_null());
        json_object_set_new(j, "version", on ? json_bytes(i->version, strlen(i->version))
                                             : json_null());
        json_object_set_new(j, "dir", json_bytes(i->dir, strlen(i->dir)));
        json_object_set_new(j, "socket", json_bytes(i->socket, strlen(i->socket)));
        json_line(j);
        return;
    }
    if (o->quiet)
        return;
    text_escape(dir, sizeof dir, i->dir, strlen(i->dir));
    text_escape(sock, sizeof sock, i->socket, strlen(i->socket));
    if (!i->running) {
        printf("not running (%s)\n", dir);
        return;
    }
    printf("running, pid %" PRId64 ", %s, up %s\n", i->pid, i->version,
           i->uptime_s ? text_duration(t, sizeof t, i->uptime_s * 1000) : "0s");
    printf("  socket %s\n", sock);
}

static int count_held(const hf_inspect_info *info, void *arg)
{
    *(size_t *)arg += info->holders > 0;
    return 0;
}

/* Under any prefix: what has a fencing number, and has taken it as a lock of ours does. */
static int count_ours(const hf_inspect_info *info, void *arg)
{
    *(size_t *)arg += info->holders > 0 && info->holder[0]->fence > 0;
    return 0;
}

static int count(const struct opts *o, hf_inspect_fn each, size_t *ret)
{
    hf_client *c = NULL;
    hf_error err;
    int code = client_open(o, NULL, &c);
    if (code)
        return code;
    hf_err e = hf_inspect_list(c, NULL, 0, each, ret, &err);
    if (e != HF_OK)
        code = msg_failed(e, &err);
    client_close(c);
    return code;
}

/* Whoever holds a lock there would lose it, or at least its server: under other prefixes, too. */
static int refuse_if_held(const struct opts *o)
{
    struct opts all = *o;
    size_t held = 0, ours = 0;
    all.prefix = "";
    int code = count(o, count_held, &held);
    if (code == 0)
        code = count(&all, count_ours, &ours);
    held = ours > held ? ours : held;
    if (code == 0 && held > 0) {
        msg_error("%zu lock%s held: not stopped (see holdfast ls; --force stops it all the same)",
                  held, held == 1 ? " is" : "s are");
        code = o->busy_code;
    }
    return code;
}

static int stop(const struct opts *o, const char *dir)
{
    hf_server_info info = { .size = sizeof info };
    hf_error err;
    hf_err e = hf_server_status(dir, &info, &err);
    /* A client would start it. */
    if (e == HF_OK && info.running && !o->force) {
        int code = refuse_if_held(o);
        if (code)
            return code;
    }
    if (e == HF_OK && !info.running) {
        msg_note("the embedded server does not run");
        return 0;
    }
    e = hf_server_stop(dir, &err);
    return e == HF_OK ? 0 : msg_failed(e, &err);
}

static int start_or_status(const struct opts *o, const char *dir, int start)
{
    hf_server_info info = { .size = sizeof info };
    hf_error err;
    hf_err e = start ? hf_server_start(dir, &info, &err) : hf_server_status(dir, &info, &err);
    if (e != HF_OK)
        return msg_failed(e, &err);
    print(o, &info);
    return info.running ? 0 : EX_SERVER;
}

int cmd_server(const struct cmd *cmd, struct opts *o, int argc, char **argv)
{
    const char *verb = argc == 1 ? argv[0] : "";
    char *dir;
    int start = strcmp(verb, "start") == 0, end = strcmp(verb, "stop") == 0;
    if (!start && !end && strcmp(verb, "status") != 0)
        return usage_error(cmd, "one of start, stop and status is needed");
    if (o->force && !end)
        return usage_error(cmd, "--force belongs to stop");
    int code = server_dir(cmd, o, &dir);
    if (code)
        return code;
    code = end ? stop(o, dir) : start_or_status(o, dir, start);
    free(dir);
    return code;
}
