/* SPDX-License-Identifier: MIT
 * giveup.c - tokens that were given up and of which the server does not know yet.
 */
#include "session/giveup.h"

#include <stdio.h>

#include "base/err.h"
#include "base/mem.h"
#include "session/client.h"

struct giveup *giveup_new(const char *prefix, hf_bytes name, const char *token, hf_bytes owner,
                          int64_t until_ms)
{
    struct giveup *g = mem_zalloc(sizeof *g);
    if (!g)
        return NULL;
    g->until_ms = until_ms;
    g->token = mem_copy(token, strlen(token));
    g->owner = mem_copy(owner.data, owner.len);
    g->owner_len = owner.len;
    if (!g->token || !g->owner || keys_new(prefix, name, &g->keys, NULL))
        return giveup_free(g);
    return g;
}

struct giveup *giveup_free(struct giveup *g)
{
    if (!g)
        return NULL;
    keys_free(g->keys);
    mem_free(g->token);
    mem_free(g->owner);
    mem_free(g);
    return NULL;
}

hf_err giveup_cancel(struct topo *t, const struct lock_keys *keys, const char *token,
                     hf_bytes owner, int64_t deadline_ms, bool *ret_held, hf_error *reterr)
{
    char remember[24];
    snprintf(remember, sizeof remember, "%d", CLIENT_TOMBSTONE_MS);
    hf_bytes k[] = { keys->key[KEY_LOCK], keys->key[KEY_TOMB], keys->key[KEY_OWN] };
    hf_bytes a[] = { hf_str(token), hf_str(remember), owner };
    struct script_call sc = { .id = SCRIPT_cancel, .nkeys = 3, .keys = k, .nargs = 3, .args = a,
                              .deadline_ms = deadline_ms };
    hf_err e = script_run(t, &sc, reterr);
    if (e)
        return e;
    if (ret_held)
        *ret_held = sc.in_doubt > 0 || (sc.reply->type == REPLY_INT && sc.reply->num == 1);
    reply_free(sc.reply);
    return HF_OK;
}
