/* SPDX-License-Identifier: MIT
 * cmd_held.c - holdfast held NAME: does anybody hold it? For `if` in a script. */
#include "commands.h"
#include "exitcode.h"
#include "lockjson.h"
#include "message.h"
#include "open.h"
#include "output.h"

#include <stdio.h>
#include <string.h>

static void print(const struct opts *o, const char *name, int held)
{
    if (o->output == OUT_TABLE)
        return;
    json_t *j = json_object();
    json_object_set_new(j, "schema", json_string(SCHEMA_HELD));
    json_set_name(j, name, strlen(name));
    json_object_set_new(j, "held", json_boolean(held));
    json_line(j);
}

int cmd_held(const struct cmd *cmd, struct opts *o, int argc, char **argv)
{
    hf_client *c = NULL;
    hf_inspect_info *info = NULL;
    hf_error err;
    if (argc != 1)
        return usage_error(cmd, argc ? "one lock at a time" : "the lock's name is missing");
    int code = client_open(o, NULL, &c);
    if (code)
        return code;
    hf_err e = hf_inspect_lock(c, hf_str(argv[0]), 0, &info, &err);
    if (e != HF_OK) {
        code = msg_failed(e, &err);
    } else {
        int held = info->holders_total > 0;
        print(o, argv[0], held);
        code = held ? EX_OKAY : EX_FREE;
    }
    hf_inspect_free(info);
    client_close(c);
    return code;
}
