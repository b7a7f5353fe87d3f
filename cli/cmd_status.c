/* SPDX-License-Identifier: MIT
 * cmd_status.c - holdfast status NAME[,NAME...]... */
#include "commands.h"
#include "exitcode.h"
#include "message.h"
#include "open.h"
#include "output.h"

#include <string.h>

/* Ask about the names of one list and add what is found. 0, or an exit status after a message. */
static int add_each(hf_client *c, const char *names, struct lock_list *list)
{
    for (;; names++) {
        hf_bytes name = { names, strcspn(names, ",") };
        hf_inspect_info *info = NULL;
        hf_error err;
        int code = 0;
        hf_err e = hf_inspect_lock(c, name, 0, &info, &err);
        if (e != HF_OK) {
            code = msg_failed(e, &err);
        } else if (lock_list_add(list, info) != 0) {
            msg_error("out of memory");
            code = EX_SYSTEM;
        }
        hf_inspect_free(info);
        names += name.len;
        if (code || !*names)
            return code;
    }
}

static int has_empty_name(const char *names)
{
    size_t n = strlen(names);
    return n == 0 || names[0] == ',' || names[n - 1] == ',' || strstr(names, ",,");
}

int cmd_status(const struct cmd *cmd, struct opts *o, int argc, char **argv)
{
    struct lock_list list = { 0 };
    hf_client *c = NULL;
    if (argc < 1)
        return usage_error(cmd, "the lock's name is missing");
    for (int i = 0; i < argc; i++)
        if (has_empty_name(argv[i]))
            return usage_error(cmd, "a lock's name is empty");
    int code = client_open(o, NULL, &c);
    for (int i = 0; i < argc && code == 0; i++)
        code = add_each(c, argv[i], &list);
    if (code == 0)
        locks_print(&list, o);
    lock_list_free(&list);
    client_close(c);
    return code;
}
