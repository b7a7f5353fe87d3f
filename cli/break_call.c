/* SPDX-License-Identifier: MIT
 * break_call.c - breaking a lock from a screen: as `holdfast break NAME --fence N`. */
#include "break_call.h"

#include "message.h"

#include <stdio.h>

#ifdef HF_REASON_MAX

#define PATIENCE_MS 3000

static const char *how_text(hf_broken how)
{
    switch (how) {
    case HF_BROKEN_FREE: return "it was free already";
    case HF_BROKEN_RELEASED: return "its holder has let go";
    case HF_BROKEN_EXPIRED: return "its lease has ended";
    case HF_BROKEN_GONE: return "its holder was gone";
    case HF_BROKEN_AT_ONCE: return "at once";
    case HF_BROKEN_MARKED: break;
    }
    return "it is marked";
}

hf_err break_call(hf_client *c, hf_bytes name, uint64_t fence, const char *reason,
                  char said[BREAK_SAID])
{
    hf_break_opts opts = { .size = sizeof opts, .reason = reason, .wait_ms = PATIENCE_MS };
    hf_break_info info = { 0 };
    hf_error err;
    char t[32];
    hf_err e = hf_break(c, name, fence, &opts, &info, &err);
    if (e == HF_OK)
        snprintf(said, BREAK_SAID, "broken: %s", how_text(info.how));
    else if (e == HF_ETIMEDOUT)
        snprintf(said, BREAK_SAID, "marked: its holder does not answer; free in %s at the latest",
                 text_duration(t, sizeof t, info.left_ms));
    else
        snprintf(said, BREAK_SAID, "not broken: %s",
                 err.message[0] ? err.message : hf_err_text(e));
    return e == HF_ETIMEDOUT ? HF_OK : e;
}

#else

hf_err break_call(hf_client *c, hf_bytes name, uint64_t fence, const char *reason,
                  char said[BREAK_SAID])
{
    (void)c;
    (void)name;
    (void)fence;
    (void)reason;
    snprintf(said, BREAK_SAID, "not broken: this build cannot break locks");
    return HF_ENOTSUP;
}

#endif
