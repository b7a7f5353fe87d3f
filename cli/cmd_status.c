/* SPDX-License-Identifier: MIT
 * cmd_status.c - holdfast status NAME... */
#include "commands.h"
#include "exitcode.h"
#include "message.h"
#include "open.h"
#include "output.h"

int cmd_status(const struct cmd *cmd, struct opts *o, int argc, char **argv)
{
    struct lock_list list = { 0 };
    hf_client *c = NULL;
    if (argc < 1)
        return usage_error(cmd, "the lock's name is missing");
    int code = client_open(o, NULL, &c);
    for (int i = 0; i < argc && code == 0; i++) {
        hf_lock_info *info = NULL;
        hf_error err;
        hf_err e = hf_inspect(c, hf_str(argv[i]), &info, &err);
        if (e != HF_OK) {
            code = msg_failed(e, &err);
        } else if (lock_list_add(&list, info) != 0) {
            msg_error("out of memory");
            code = EX_SYSTEM;
        }
        hf_lock_info_free(info);
    }
    if (code == 0)
        locks_print(&list, o, 1, 0);
    lock_list_free(&list);
    hf_client_free(c);
    return code;
}
