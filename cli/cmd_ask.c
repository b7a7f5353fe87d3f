/* SPDX-License-Identifier: MIT
 * cmd_ask.c - holdfast ask NAME [-m TEXT]: ask the holder to let go. */
#include "commands.h"
#include "exitcode.h"
#include "message.h"
#include "open.h"
#include "output.h"
#include "parties.h"

#include <stdio.h>
#include <string.h>

static void print(const struct opts *o, const char *name, const char *who, size_t asked,
                  size_t heard)
{
    if (o->output != OUT_TABLE) {
        json_t *j = json_object();
        json_set_name(j, name, strlen(name));
        json_object_set_new(j, "asked", json_integer((json_int_t)asked));
        json_object_set_new(j, "heard", json_integer((json_int_t)heard));
        json_line(j);
        return;
    }
    if (o->quiet)
        return;
    if (asked == 1)
        printf("asked: %s %s\n", who[0] ? who : "the holder",
               heard ? "has been told"
                     : "cannot be told now: it hears of it when it renews, if it does");
    else
        printf("asked: %zu holders, of whom %zu have been told; the others hear of it when they "
               "renew\n", asked, heard);
}

static int ask(hf_client *c, const struct opts *o, const char *name)
{
    char who[PARTY_TEXT];
    size_t asked, heard;
    hf_error err;
    hf_err e = party_with_fence(c, name, (uint64_t)o->fence, who, &err);
    if (e == HF_OK)
        e = hf_ask(c, hf_str(name), (uint64_t)o->fence, o->message, &asked, &heard, &err);
    if (e == HF_OK) {
        print(o, name, who, asked, heard);
        return EX_OKAY;
    }
    int code = msg_failed(e, &err);
    return e == HF_ENOTSET ? EX_FREE : code;
}

int cmd_ask(const struct cmd *cmd, struct opts *o, int argc, char **argv)
{
    hf_client *c = NULL;
    if (argc != 1)
        return usage_error(cmd, argc ? "one lock at a time" : "the lock's name is missing");
    if (o->message && strlen(o->message) > HF_REASON_MAX)
        return usage_error(cmd, "the message has %zu bytes, and may have %d", strlen(o->message),
                           HF_REASON_MAX);
    int code = client_open(o, NULL, &c);
    if (code)
        return code;
    code = ask(c, o, argv[0]);
    client_close(c);
    return code;
}
