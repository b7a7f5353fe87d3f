/* SPDX-License-Identifier: MIT
 * cmd_once.c - holdfast once NAME --ttl D -- CMD ARG...
 *
 * The same steps as hf_once_compute(), with a process as the computation: look; take the lock; look
 * again, somebody may have been quicker; run CMD, pass its output on, keep it; cache it if CMD
 * ended well. */
#include "capture.h"
#include "command.h"
#include "commands.h"
#include "ending.h"
#include "exitcode.h"
#include "message.h"
#include "open.h"
#include "supervise.h"
#include "take.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

struct once {
    hf_client         *client;
    const struct opts *o;
    const char        *name;
    char             **command;
    struct signals     signals;
    struct taken       taken;
    struct child       child;
    hf_value          *old; /* not fresh any more, but good enough while another computes */
    hf_value          *out; /* is to be printed in the end: others must not wait for our reader */
};

static int check_opts(struct opts *o, const struct cmd *cmd)
{
    if (o->fresh_ms == GIVEN_NOT)
        return usage_error(cmd, "--ttl is missing: how long is the output fresh?");
    if (o->fresh_ms < 1 || o->fresh_ms > HF_TTL_MAX_MS)
        return usage_error(cmd, "--ttl must be longer than 0 and at most 365d");
    if (o->stale_ms == GIVEN_NOT)
        o->stale_ms = 0;
    if (o->stale_ms > HF_TTL_MAX_MS)
        return usage_error(cmd, "--stale must be at most 365d");
    return options_check_take(o, cmd);
}

/* Nothing is held any more: a reader that stands still keeps nobody but us, and a signal ends
 * us. */
static void print(const struct once *w)
{
    pthread_sigmask(SIG_SETMASK, &w->signals.original, NULL);
    fwrite(w->out->data, 1, w->out->len, stdout); /* main() looks whether that went well */
    fflush(stdout);
}

/* What is cached is to be printed, if it is fresh; keep it, if it may serve meanwhile. 1: the
 * command is over, with *ret_code. */
static int read_cached(struct once *w, int *ret_code)
{
    hf_value *v = NULL;
    hf_error err;
    if (w->o->refresh)
        return 0;
    ending_on_signal(); /* what we may hold by now passes on as if we had died */
    hf_err e = hf_once_get(w->client, hf_str(w->name), &v, &err);
    ending_off();
    if (e != HF_OK) {
        *ret_code = msg_failed(e, &err);
        return 1;
    }
    int fresh = v && v->fresh_ms > 0;
    if (fresh) {
        char age[32];
        msg_verbose("cached %s ago", text_duration(age, sizeof age, v->age_ms));
        *ret_code = EX_OKAY;
    }
    w->old = hf_value_free(w->old);
    if (fresh)
        w->out = v;
    else if (v && -v->fresh_ms < w->o->stale_ms)
        w->old = v;
    else
        hf_value_free(v);
    return fresh;
}

/* 1: the lock is ours. Else the command is over. */
static int take(struct once *w, int *ret_code)
{
    if (!w->old)
        return taken_wait(&w->taken, w->o, ret_code);
    struct opts try_once = *w->o;
    try_once.nonblock = try_once.skip_ok = 1;
    if (taken_wait(&w->taken, &try_once, ret_code))
        return 1;
    if (*ret_code == EX_OKAY) { /* busy */
        msg_verbose("old output, another computes");
        w->out = w->old;
        w->old = NULL;
    }
    return 0;
}

/* CMD has ended with 0: cache what it wrote, unless that is too much or the lock is lost. Whatever
 * comes of it, CMD's work was done and its output passed on. */
static void store(struct once *w, const struct capture *cap)
{
    hf_error err;
    if (cap->too_large) {
        msg_note_about("the output is larger than --max-size (%zu bytes): passed on, not cached",
                 cap->max);
        return;
    }
    hf_err e = hf_once_put(w->client, hf_str(w->name), w->taken.lock[0].m,
                           (hf_bytes){ cap->kept, cap->len }, w->o->fresh_ms, w->o->stale_ms, &err);
    if (e != HF_OK)
        msg_error_about("the output was not cached: %s", err.message);
}

static int compute(struct once *w)
{
    struct capture cap;
    int code = command_environment(&w->taken, w->name, w->o);
    if (code)
        return code;
    if (capture_open(&cap, (size_t)w->o->max_size) != 0) {
        msg_error("cannot take in the output of a command: %s", strerror(errno));
        return EX_SYSTEM;
    }
    code = supervise_captured(&w->child, &w->taken, w->o, &w->signals, w->command, environ, &cap);
    taken_way_out(&w->taken, w->o->ttl_ms,
                  code == EX_OKAY ? "the output may not have been cached; " : "", code);
    if (code == EX_OKAY)
        store(w, &cap);
    if (code == EX_OKAY && cap.broken) {
        msg_error("cannot write the output: %s", strerror(cap.broken));
        code = EX_OUTPUT;
    }
    capture_close(&cap);
    return code;
}

static int run(struct once *w)
{
    int code = EX_OKAY;
    if (read_cached(w, &code))
        return code;
    code = taken_open(&w->taken, w->client, w->o, 0);
    if (code || !take(w, &code))
        return code;
    if (read_cached(w, &code)) {
        ending_on_signal(); /* before what is cached was printed, we do not leave by ourselves */
        taken_release(&w->taken);
        ending_off();
        return code;
    }
    code = compute(w);
    if (w->child.left_alive)
        taken_abandon(&w->taken, w->o->ttl_ms);
    int nothing_left = w->child.left_alive || (w->child.lost && taken_all_lost(&w->taken));
    child_reap(&w->child, nothing_left || taken_release(&w->taken));
    return code;
}

int cmd_once(const struct cmd *cmd, struct opts *o, int argc, char **argv)
{
    struct once w = { .o = o, .command = command_find(cmd, o, argc, argv) };
    int code = w.command ? check_opts(o, cmd) : EX_USE;
    if (code)
        return code;
    w.name = argv[0];
    signals_block(&w.signals); /* before the library's threads inherit the mask */
    code = taken_names(&w.taken, cmd, w.name, 0);
    if (code == 0)
        code = client_await(o, command_program(w.command), &w.client);
    if (code == 0)
        code = run(&w);
    if (w.out)
        print(&w);
    hf_value_free(w.out);
    hf_value_free(w.old);
    taken_end(&w.taken, w.client, code);
    if (w.child.pid > 0)
        child_pass_interrupt(&w.child, &w.signals);
    return code;
}
