/* SPDX-License-Identifier: MIT
 * sentinel.c - fuzz: what a Sentinel says is an address that can be one, a number of replicas in
 * its bounds, or is refused.
 */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "net/resp.h"
#include "net/url.h"
#include "topo/sentinel_words.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void must(int holds)
{
    if (!holds)
        abort();
}

static void check(const struct reply *rp)
{
    hf_bytes host = { 0 };
    int port = 0, replicas = sentinel_replicas(rp);
    must(replicas >= -1 && replicas <= URL_REPLICAS_MAX);
    if (!sentinel_address(rp, &host, &port))
        return;
    must(port > 0 && port < 65536);
    must(host.len > 0 && strlen(host.data) == host.len);
    for (const char *p = host.data; *p; p++)
        must(*p > ' ' && *p != 0x7f && !strchr("/@?#,[]'\"\\", *p));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct resp *r = resp_new();
    struct reply *rp = NULL;
    must(r != NULL);
    if (!resp_feed(r, data, size)) {
        while (!resp_next(r, &rp) && rp) {
            check(rp);
            rp = reply_free(rp);
        }
    }
    resp_free(r);
    return 0;
}
