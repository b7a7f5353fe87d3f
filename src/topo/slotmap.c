/* SPDX-License-Identifier: MIT
 * slotmap.c - what a cluster says about where its slots are: CLUSTER SLOTS, MOVED and ASK.
 */
#include "topo/slotmap.h"

#include <stdio.h>
#include <string.h>

#include "net/url.h"
#include "topo/slot.h"

static bool is_unknown(const char *host, size_t len)
{
    return len == 1 && *host == '?';
}

/* Nobody connects to, nor is shown, what cannot be a host. */
static bool set_host(struct slot_place *p, const char *host, size_t len)
{
    if (len >= sizeof p->host || (len && !is_unknown(host, len) && !url_is_host(host, len)))
        return false;
    memcpy(p->host, host, len);
    p->host[len] = '\0';
    return true;
}

static bool set_port(struct slot_place *p, long long port)
{
    p->port = (int)port;
    return port > 0 && port < 65536;
}

static void set_id(struct slot_place *p, const struct reply *node)
{
    const struct reply *id = node->len > 2 ? node->item[2] : NULL;
    bool said = id && id->type == REPLY_BULK && id->len < sizeof p->id;
    snprintf(p->id, sizeof p->id, "%s", said ? id->str : "");
}

/* {host, port, id, {"ip", address, ...}}. Without a host: where we asked. Its address, if it has
 * been told to prefer a name and has none. */
static bool read_host(const struct reply *node, struct slot_place *p)
{
    const struct reply *host = node->item[0], *more = node->len > 3 ? node->item[3] : NULL;
    if (host->type == REPLY_NIL)
        return set_host(p, "", 0);
    if (host->type != REPLY_BULK)
        return false;
    for (size_t i = 0; is_unknown(host->str, host->len) && more && i + 1 < more->len; i += 2)
        if (more->type == REPLY_ARRAY && more->item[i]->type == REPLY_BULK
            && more->item[i + 1]->type == REPLY_BULK && strcmp(more->item[i]->str, "ip") == 0)
            host = more->item[i + 1];
    return set_host(p, host->str, host->len);
}

/* {first, last, {host, port, id, ...} of the master, of each replica ...} */
static bool read_range(const struct reply *rp, struct slot_place *p)
{
    if (rp->type != REPLY_ARRAY || rp->len < 3 || rp->item[0]->type != REPLY_INT
        || rp->item[1]->type != REPLY_INT)
        return false;
    long long first = rp->item[0]->num, last = rp->item[1]->num;
    const struct reply *master = rp->item[2];
    if (first < 0 || last < first || last >= SLOT_COUNT || master->type != REPLY_ARRAY
        || master->len < 2 || master->item[1]->type != REPLY_INT)
        return false;
    p->first = (unsigned)first;
    p->last = (unsigned)last;
    p->replicas = (unsigned)rp->len - 3;
    set_id(p, master);
    return read_host(master, p) && set_port(p, master->item[1]->num);
}

bool slotmap_read(const struct reply *rp, void (*each)(void *arg, const struct slot_place *place),
                  void *arg)
{
    struct slot_place p;
    if (rp->type != REPLY_ARRAY)
        return false;
    for (size_t i = 0; i < rp->len; i++)
        if (!read_range(rp->item[i], &p))
            return false;
    for (size_t i = 0; i < rp->len; i++) {
        read_range(rp->item[i], &p);
        if (!is_unknown(p.host, strlen(p.host)))
            each(arg, &p);
    }
    return true;
}

bool slotmap_redirection(const struct reply *rp, bool *ret_ask, struct slot_place *ret)
{
    if (rp->type != REPLY_ERROR)
        return false;
    bool ask = strncmp(rp->str, "ASK ", 4) == 0;
    if (!ask && strncmp(rp->str, "MOVED ", 6) != 0)
        return false;
    const char *at = rp->str + (ask ? 4 : 6), *end = at + strcspn(at, " ");
    int slot = url_number(at, (size_t)(end - at), SLOT_COUNT - 1);
    if (slot < 0 || *end != ' ')
        return false;
    const char *host = end + 1;
    end = host + strcspn(host, " "); /* a newer server may say more */
    const char *colon = memrchr(host, ':', (size_t)(end - host)); /* IPv6 has more of them */
    if (!colon)
        return false;
    *ret_ask = ask;
    ret->first = ret->last = (unsigned)slot;
    ret->replicas = 0;
    ret->id[0] = '\0';
    return !is_unknown(host, (size_t)(colon - host)) && set_host(ret, host, (size_t)(colon - host))
           && set_port(ret, url_number(colon + 1, (size_t)(end - colon - 1), 65535));
}
