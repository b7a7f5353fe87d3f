/* SPDX-License-Identifier: MIT
 * cmd_extend.c - holdfast extend NAME --owner ID --ttl D */
#include "commands.h"
#include "exitcode.h"
#include "message.h"
#include "open.h"
#include "output.h"

#include <string.h>

int cmd_extend(const struct cmd *cmd, struct opts *o, int argc, char **argv)
{
    hf_client *c = NULL;
    hf_error err;
    if (argc != 1)
        return usage_error(cmd, argc ? "one lock at a time" : "the lock's name is missing");
    if (!o->owner)
        return usage_error(cmd, "--owner is missing");
    if (o->ttl_ms == GIVEN_NOT)
        return usage_error(cmd, "--ttl is missing");
    if (o->ttl_ms < HF_TTL_MIN_MS || o->ttl_ms > HF_TTL_MAX_MS)
        return usage_error(cmd, "--ttl must be between 100ms and 365d");
    int code = client_open(o, NULL, &c);
    if (code)
        return code;
    hf_err e = hf_owner_extend(c, hf_str(argv[0]), hf_str(o->owner), o->ttl_ms, &err);
    if (e != HF_OK) {
        code = msg_failed(e, &err);
    } else if (o->output != OUT_TABLE) {
        json_t *j = json_object();
        json_set_name(j, argv[0], strlen(argv[0]));
        json_object_set_new(j, "extended", json_true());
        json_object_set_new(j, "ttl_ms", json_integer(o->ttl_ms));
        json_line(j);
    }
    client_close(c);
    return code;
}
