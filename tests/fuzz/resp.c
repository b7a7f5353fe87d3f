/* SPDX-License-Identifier: MIT
 * resp.c - fuzz: the same bytes give the same replies and the same end, whole or in pieces.
 */
#include "net/resp.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static uint64_t mix(uint64_t h, const void *data, size_t len)
{
    const unsigned char *p = data;
    for (size_t i = 0; i < len; i++)
        h = (h ^ p[i]) * UINT64_C(0x100000001b3);
    return h;
}

/* Everything in the tree, and the limits that it must keep. */
static uint64_t digest(uint64_t h, const struct reply *rp, int depth)
{
    if (depth > RESP_MAX_DEPTH + 1 || rp->len > RESP_MAX_BYTES)
        abort();
    h = mix(h, &rp->type, sizeof rp->type);
    h = mix(h, &rp->num, sizeof rp->num);
    h = mix(h, &rp->len, sizeof rp->len);
    if (rp->str) {
        if (rp->str[rp->len] != '\0')
            abort();
        h = mix(h, rp->str, rp->len);
    }
    for (size_t i = 0; rp->type == REPLY_ARRAY && i < rp->len; i++)
        h = digest(h, rp->item[i], depth + 1);
    return h;
}

struct outcome {
    uint64_t digest;
    size_t   replies;
    hf_err   err;
};

static void take(struct resp *r, struct outcome *o)
{
    struct reply *rp;
    while (!o->err && (o->err = resp_next(r, &rp)) == HF_OK && rp) {
        o->digest = digest(o->digest, rp, 1);
        o->replies++;
        reply_free(rp);
    }
}

/* chunk 0: whole; else pieces of 1 to chunk bytes, by a generator seeded with the data. */
static struct outcome run(struct resp *r, const uint8_t *data, size_t size, size_t chunk)
{
    struct outcome o = { 14695981039346656037u, 0, HF_OK };
    uint64_t seed = mix(size, data, size);

    while (size > 0 && !o.err) {
        seed = seed * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
        size_t n = chunk ? 1 + (size_t)(seed >> 33) % chunk : size;
        if (n > size)
            n = size;
        o.err = resp_feed(r, data, n);
        take(r, &o);
        data += n;
        size -= n;
    }
    if (o.err && !resp_error(r)[0])
        abort();
    resp_reset(r);
    return o;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const size_t chunks[] = { 1, 7, 1500 };
    struct resp *r = resp_new();

    if (!r)
        abort();
    struct outcome whole = run(r, data, size, 0);
    for (size_t i = 0; i < sizeof chunks / sizeof *chunks; i++) {
        struct outcome o = run(r, data, size, chunks[i]);
        if (o.digest != whole.digest || o.replies != whole.replies || o.err != whole.err)
            abort();
    }
    resp_free(r);
    return 0;
}
