/* SPDX-License-Identifier: MIT
 * cmd_release.c - holdfast release NAME --owner ID, holdfast release --all --owner ID */
#include "commands.h"
#include "exitcode.h"
#include "message.h"
#include "open.h"
#include "output.h"

#include <stdio.h>
#include <string.h>

static int release_one(hf_client *c, const struct opts *o, const char *name)
{
    hf_error err;
    hf_err e = hf_owner_release(c, hf_str(name), hf_str(o->owner), &err);
    if (e != HF_OK)
        return msg_failed(e, &err);
    if (o->output != OUT_TABLE) {
        json_t *j = json_object();
        json_set_name(j, name, strlen(name));
        json_object_set_new(j, "released", json_integer(1));
        json_line(j);
    }
    return 0;
}

static int release_all(hf_client *c, const struct opts *o)
{
    hf_error err;
    size_t n = 0;
    hf_err e = hf_owner_release_all(c, hf_str(o->owner), &n, &err);
    if (e != HF_OK)
        return msg_failed(e, &err);
    if (o->output != OUT_TABLE) {
        json_t *j = json_object();
        json_object_set_new(j, "released", json_integer((json_int_t)n));
        json_line(j);
    } else if (!o->quiet) {
        printf("released %zu\n", n);
    }
    return 0;
}

int cmd_release(const struct cmd *cmd, struct opts *o, int argc, char **argv)
{
    hf_client *c = NULL;
    if (o->all && argc > 0)
        return usage_error(cmd, "--all takes no name");
    if (!o->all && argc != 1)
        return usage_error(cmd, argc ? "one lock at a time" : "the name (or --all) is missing");
    if (!o->owner)
        return usage_error(cmd, "--owner is missing");
    int code = client_open(o, NULL, &c);
    if (code)
        return code;
    code = o->all ? release_all(c, o) : release_one(c, o, argv[0]);
    client_close(c);
    return code;
}
