/* SPDX-License-Identifier: MIT
 * slotmap.c - fuzz: any reply is a map or a redirection, whose parts are in their bounds, or is
 * refused; and what servers claim.
 */
#include "topo/slotmap.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "topo/slot_claims.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check(void *arg, const struct slot_place *p)
{
    size_t *calls = arg;
    if (p->first > p->last || p->last >= SLOT_COUNT || p->port < 1 || p->port > 65535
        || strnlen(p->host, sizeof p->host) == sizeof p->host || strcmp(p->host, "?") == 0)
        abort();
    ++*calls;
}

/* Of itself, and what another one leaves of it: never more. */
static void check_claims(const struct reply *rp)
{
    struct slot_claims own, left;
    if (slot_claims_read(&own, rp))
        abort();
    left = own;
    if (slot_claims_settle(&left, rp))
        abort();
    for (unsigned s = 0; s < SLOT_COUNT; s++)
        if (slot_claims_has(&left, s) && !slot_claims_has(&own, s))
            abort();
    slot_claims_assume(&left, own.id);
    if (!slot_claims_any(&left) || slot_claims_settle(&left, rp))
        abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct resp *r = resp_new();
    struct reply *rp = NULL;
    if (!r)
        abort();
    if (!resp_feed(r, data, size)) {
        while (!resp_next(r, &rp) && rp) {
            struct slot_place p;
            size_t calls = 0;
            bool ask;
            if (!slotmap_read(rp, check, &calls) && calls)
                abort();
            if (slotmap_redirection(rp, &ask, &p)) {
                check(&calls, &p);
                if (p.first != p.last || rp->type != REPLY_ERROR)
                    abort();
            }
            check_claims(rp);
            reply_free(rp);
            rp = NULL;
        }
    }
    resp_free(r);
    return 0;
}
