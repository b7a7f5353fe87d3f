/* SPDX-License-Identifier: MIT
 * cmd_ls.c - holdfast ls [PATTERN] */
#include "commands.h"
#include "exitcode.h"
#include "listing.h"
#include "message.h"
#include "open.h"

#include <stdio.h>
#include <time.h>
#include <unistd.h>

struct ls {
    struct listing listing;
    int            out_of_memory;
};

static int each(const hf_inspect_info *info, void *arg)
{
    struct ls *l = arg;
    l->out_of_memory = listing_add(&l->listing, info) != 0;
    return l->out_of_memory || ferror(stdout);
}

/* What could be seen is printed, also if that is not all. */
static int list_once(hf_client *c, const struct opts *o, const char *pattern)
{
    struct ls l = { 0 };
    hf_error err;
    listing_begin(&l.listing, o, o->watch);
    hf_err e = hf_inspect_list(c, pattern, 0, each, &l, &err);
    listing_end(&l.listing);
    if (l.out_of_memory)
        return msg_failed(HF_ENOMEM, NULL);
    if (e != HF_OK)
        fflush(stdout);
    return e == HF_OK ? 0 : msg_failed(e, &err);
}

/* Until a signal ends us: there is nothing to clean up. */
static int watch(hf_client *c, const struct opts *o, const char *pattern)
{
    int screen = o->output == OUT_TABLE && isatty(STDOUT_FILENO);
    for (;;) {
        struct timespec second = { .tv_sec = 1 };
        if (screen)
            fputs("\033[H\033[J", stdout);
        int code = list_once(c, o, pattern);
        if (!screen && o->output == OUT_TABLE)
            putchar('\n');
        if (code || fflush(stdout) != 0)
            return code;
        nanosleep(&second, NULL);
    }
}

int cmd_ls(const struct cmd *cmd, struct opts *o, int argc, char **argv)
{
    hf_client *c = NULL;
    if (argc > 1)
        return usage_error(cmd, "one pattern at most: quote it, so that the shell does not "
                                "expand it");
    int code = client_open(o, NULL, &c);
    if (code)
        return code;
    const char *pattern = argc ? argv[0] : NULL;
    code = o->watch ? watch(c, o, pattern) : list_once(c, o, pattern);
    client_close(c);
    return code;
}
