/* SPDX-License-Identifier: MIT
 * cmd_resize.c - holdfast resize NAME --slots N */
#include "commands.h"
#include "exitcode.h"
#include "message.h"
#include "open.h"

#include <inttypes.h>
#include <string.h>

int cmd_resize(const struct cmd *cmd, struct opts *o, int argc, char **argv)
{
    char name[TEXT_ESCAPED(1024) + 8];
    hf_client *c = NULL;
    hf_error err;
    unsigned old = 0;
    if (argc != 1)
        return usage_error(cmd,
                           argc ? "one semaphore at a time" : "the semaphore's name is missing");
    if (!o->slots || o->slots > 1000000)
        return usage_error(cmd, "say how many: --slots 1 to 1000000");
    int code = client_open(o, NULL, &c);
    if (code)
        return code;
    hf_err e = hf_semaphore_resize(c, hf_str(argv[0]), (unsigned)o->slots, &old, &err);
    text_escape(name, sizeof name, argv[0], strlen(argv[0]));
    if (e != HF_OK)
        code = e == HF_EBUSY ? (msg_error("%s", err.message), EX_BUSY) : msg_failed(e, &err);
    else if (old)
        msg_verbose("%s: %u slots before, %" PRId64 " now", name, old, o->slots);
    else
        msg_verbose("%s: %" PRId64 " slots from now on; nobody uses it", name, o->slots);
    client_close(c);
    return code;
}
