/* SPDX-License-Identifier: MIT
 * side.c - a connection of one caller's own, for what the shared one cannot do: WATCH.
 */
#include "session/side.h"

#include "base/mem.h"
#include "session/client.h"

struct side *side_take(hf_client *c, hf_bytes key)
{
    pthread_mutex_lock(&c->session_mu);
    struct side *s = c->side;
    c->side = NULL;
    pthread_mutex_unlock(&c->session_mu);
    (void)topo_conn(c->topo, key); /* notices a move */
    if (s && s->open
        && (s->moves != topo_moves(c->topo) || s->server != topo_server(c->topo, key)))
        side_close(s);
    if (s)
        return s;
    s = mem_zalloc(sizeof *s);
    if (s && link_init(&s->link) < 0) {
        mem_free(s);
        return NULL;
    }
    return s;
}

void side_give(hf_client *c, struct side *s)
{
    pthread_mutex_lock(&c->session_mu);
    if (s->open && !c->side) {
        c->side = s;
        s = NULL;
    }
    pthread_mutex_unlock(&c->session_mu);
    side_free(s);
}

hf_err side_open(hf_client *c, struct side *s, hf_bytes key, int64_t deadline_ms, hf_error *reterr)
{
    s->moves = topo_moves(c->topo);
    s->server = topo_server(c->topo, key);
    hf_err e = topo_link(c->topo, key, &s->link, deadline_ms, reterr);
    if (e)
        return e;
    client_token(c, s->id, sizeof s->id);
    s->open = true;
    s->watching = false;
    s->writes = 0;
    return HF_OK;
}

void side_close(struct side *s)
{
    link_close(&s->link, false);
    s->open = false;
}

struct side *side_free(struct side *s)
{
    if (s)
        link_clear(&s->link);
    mem_free(s);
    return NULL;
}
