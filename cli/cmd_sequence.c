/* SPDX-License-Identifier: MIT
 * cmd_sequence.c - holdfast sequence NAME: increasing ids, one on each line. */
#include "commands.h"
#include "exitcode.h"
#include "message.h"
#include "open.h"
#include "output.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define BLOCK_MAX 1000

static int print_all(const struct opts *o, hf_sequence *s, const char *name)
{
    json_t *ids = o->output == OUT_JSON ? json_array() : NULL;
    int code = 0;
    for (int64_t i = 0; i < o->count && code == 0 && !ferror(stdout); i++) {
        uint64_t id;
        hf_error err;
        hf_err e = hf_sequence_next(s, &id, &err);
        if (e)
            code = msg_failed(e, &err);
        else if (ids)
            json_array_append_new(ids, json_integer((json_int_t)id));
        else if (o->output == OUT_JSONL)
            printf("{\"id\":%" PRIu64 "}\n", id);
        else
            printf("%" PRIu64 "\n", id);
    }
    if (ids && code == 0) {
        json_t *j = json_object();
        json_set_name(j, name, strlen(name));
        json_object_set(j, "ids", ids);
        json_line(j);
    }
    json_decref(ids);
    return code;
}

int cmd_sequence(const struct cmd *cmd, struct opts *o, int argc, char **argv)
{
    hf_client *c = NULL;
    hf_sequence *s = NULL;
    hf_error err;
    if (argc != 1)
        return usage_error(cmd, argc ? "one sequence at a time" : "the sequence's name is missing");
    if (o->block > HF_BLOCK_MAX)
        return usage_error(cmd, "--block: at most %d", HF_BLOCK_MAX);
    if (o->count == 0)
        o->count = 1;
    /* Who wants one id shall not leave a gap of a thousand. */
    if (o->block == 0)
        o->block = o->count < BLOCK_MAX ? o->count : BLOCK_MAX;
    int code = client_open(o, NULL, &c);
    if (code)
        return code;
    hf_sequence_opts so = { .size = sizeof so, .block = (uint64_t)o->block,
                            .start = (uint64_t)o->start, .from_time = o->from_time };
    hf_err e = hf_sequence_open(c, hf_str(argv[0]), &so, &s, &err);
    code = e ? msg_failed(e, &err) : print_all(o, s, argv[0]);
    hf_sequence_free(s);
    client_close(c);
    return code;
}
