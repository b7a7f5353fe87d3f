/* SPDX-License-Identifier: MIT
 * sentinel_words.c - what one Sentinel answers: an address, how many replicas.
 */
#include "topo/sentinel_words.h"

#include <string.h>

#include "net/url.h"

bool sentinel_address(const struct reply *rp, hf_bytes *ret_host, int *ret_port)
{
    if (!rp || rp->type != REPLY_ARRAY || rp->len != 2 || rp->item[0]->type != REPLY_BULK
        || rp->item[1]->type != REPLY_BULK || !url_is_host(rp->item[0]->str, rp->item[0]->len))
        return false;
    *ret_host = (hf_bytes){ rp->item[0]->str, rp->item[0]->len };
    *ret_port = url_number(rp->item[1]->str, rp->item[1]->len, 65535);
    return *ret_port > 0;
}

int sentinel_replicas(const struct reply *rp)
{
    for (size_t i = 0; rp && rp->type == REPLY_ARRAY && i + 1 < rp->len; i += 2)
        if (rp->item[i]->type == REPLY_BULK && rp->item[i + 1]->type == REPLY_BULK
            && strcmp(rp->item[i]->str, "num-slaves") == 0)
            return url_number(rp->item[i + 1]->str, rp->item[i + 1]->len, URL_REPLICAS_MAX);
    return -1;
}
