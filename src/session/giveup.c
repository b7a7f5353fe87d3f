/* SPDX-License-Identifier: MIT
 * giveup.c - tokens that were given up and of which the server does not know yet.
 */
#include "session/client.h"

#include <stdio.h>
#include <string.h>

#include "base/err.h"
#include "base/mem.h"
#include "session/giveup.h"

static hf_bytes put(char **p, hf_bytes b)
{
    char *start = *p;
    if (b.len)
        memcpy(start, b.data, b.len);
    start[b.len] = '\0';
    *p += b.len + 1;
    return (hf_bytes){ start, b.len };
}

struct giveup *giveup_new(hf_client *c, const struct cancel *what, int64_t until_ms)
{
    hf_bytes token = hf_str(what->token);
    struct giveup *g = mem_zalloc(sizeof *g + token.len + what->owner.len + what->member.len + 3);
    if (!g)
        return NULL;
    char *p = g->bytes;
    g->until_ms = until_ms;
    g->what = *what;
    g->what.token = put(&p, token).data;
    g->what.owner = put(&p, what->owner);
    g->what.member = put(&p, what->member);
    if (client_keys(c, what->keys->name, &g->keys, NULL))
        return giveup_free(g);
    g->what.keys = g->keys;
    g->moves = topo_moves_of(c->topo, g->keys->key[KEY_LOCK]);
    return g;
}

struct giveup *giveup_free(struct giveup *g)
{
    if (!g)
        return NULL;
    keys_free(g->keys);
    mem_free(g);
    return NULL;
}

hf_err giveup_cancel(hf_client *c, const struct cancel *what, int64_t deadline_ms, bool *ret_held,
                     hf_error *reterr)
{
    char remember[24];
    snprintf(remember, sizeof remember, "%d", what->remember ? CLIENT_TOMBSTONE_MS : 0);
    const hf_bytes *key = what->keys->key;
    struct greeting *g = &what->keys->home->greeting;
    hf_bytes keys[] = { key[KEY_LOCK], hf_str(g->counter), key[KEY_QUEUE], key[KEY_TOMB],
                        key[KEY_OWN] };
    hf_bytes args[] = { hf_str(what->token), hf_str(remember), what->member, what->owner };
    struct script_call sc = { .id = SCRIPT_cancel, .nkeys = 5, .keys = keys, .nargs = 4,
                              .args = args, .deadline_ms = deadline_ms, .greeting = g };
    hf_err e = script_run(c->topo, &sc, reterr);
    if (e)
        return e;
    if (ret_held)
        *ret_held = sc.in_doubt > 0 || (sc.reply->type == REPLY_INT && sc.reply->num == 1);
    reply_free(sc.reply);
    return HF_OK;
}
