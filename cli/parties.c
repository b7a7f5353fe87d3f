/* SPDX-License-Identifier: MIT
 * parties.c - who holds a lock, in a few words. */
#include "parties.h"

#include "message.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

enum { PART = 96 };

static void describe(const hf_party *p, char ret[PARTY_TEXT])
{
    char host[PART], program[PART] = "";
    if (!p->pid || !p->host)
        return;
    text_escape(host, sizeof host, p->host, strlen(p->host));
    if (p->program)
        text_escape(program, sizeof program, p->program, strlen(p->program));
    snprintf(ret, PARTY_TEXT, "process %" PRId64 " on %s%s%s%s", p->pid, host,
             program[0] ? " (" : "", program, program[0] ? ")" : "");
}

hf_err party_with_fence(hf_client *c, const char *name, uint64_t fence, char ret[PARTY_TEXT],
                        hf_error *reterr)
{
    hf_inspect_info *info = NULL;
    ret[0] = '\0';
    hf_err e = hf_inspect_lock(c, hf_str(name), 0, &info, reterr);
    for (size_t i = 0; !e && i < info->holders; i++)
        if (fence ? info->holder[i]->fence == fence : info->holders_total == 1)
            describe(info->holder[i], ret);
    hf_inspect_free(info);
    return e;
}
