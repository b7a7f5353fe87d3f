/* SPDX-License-Identifier: MIT
 * cmd_check.c - holdfast check NAME --owner ID */
#include "commands.h"
#include "exitcode.h"
#include "message.h"
#include "open.h"
#include "output.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

static void print(const struct opts *o, const char *name, int held, int64_t ttl_ms)
{
    if (o->output != OUT_TABLE) {
        json_t *j = json_object();
        json_set_name(j, name, strlen(name));
        json_object_set_new(j, "held", json_boolean(held));
        json_object_set_new(j, "ttl_ms", held && ttl_ms >= 0 ? json_integer(ttl_ms) : json_null());
        json_line(j);
    } else if (held && !o->quiet) {
        printf("held ttl=%" PRId64 "ms\n", ttl_ms);
    }
}

int cmd_check(const struct cmd *cmd, struct opts *o, int argc, char **argv)
{
    hf_client *c = NULL;
    hf_error err;
    int64_t ttl_ms = -1;
    if (argc != 1)
        return usage_error(cmd, argc ? "one lock at a time" : "the lock's name is missing");
    if (!o->owner)
        return usage_error(cmd, "--owner is missing");
    int code = client_open(o, NULL, &c);
    if (code)
        return code;
    hf_err e = hf_owner_check(c, hf_str(argv[0]), hf_str(o->owner), &ttl_ms, &err);
    if (e == HF_ENOTOWNER) {
        msg_note("%s", err.message);
        code = EX_NOT_OWNER;
    } else if (e != HF_OK) {
        code = msg_failed(e, &err);
    }
    if (e == HF_OK || e == HF_ENOTOWNER)
        print(o, argv[0], e == HF_OK, ttl_ms);
    client_close(c);
    return code;
}
