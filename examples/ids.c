/* SPDX-License-Identifier: MIT
 * ids.c - growing ids, none of which is ever given out twice, by any number of processes.
 *
 *     ids COUNT [BLOCK]
 *
 * The next free id is in a key on the server. With BLOCK 1 (the default) every id is one update,
 * and the ids of all processes grow in the order in which they were given out. With a larger BLOCK
 * a process takes that many at once, with fewer round trips: its own ids still grow, and a process
 * that ends early leaves a gap.
 */
#include <holdfast.h>
#include <stdio.h>
#include <stdlib.h>

struct block {
    long long size, first; /* what was taken */
    char      text[32];
};

/* Called again for each try; it only computes. */
static hf_change take(void *arg, hf_bytes old, hf_bytes *ret_new)
{
    struct block *b = arg;
    char text[32] = "1";
    if (old.data)
        snprintf(text, sizeof text, "%.*s", (int)old.len, (const char *)old.data);
    b->first = atoll(text);
    ret_new->data = b->text;
    ret_new->len = (size_t)snprintf(b->text, sizeof b->text, "%lld", b->first + b->size);
    return HF_CHANGE_SET;
}

int main(int argc, char **argv)
{
    long long count = argc > 1 ? atoll(argv[1]) : 10, left = 0, next = 0;
    struct block b = { .size = argc > 2 ? atoll(argv[2]) : 1 };
    hf_client *c = NULL;
    hf_error err;
    int e = hf_client_open(NULL, NULL, &c, &err);

    if (b.size < 1)
        b.size = 1;
    for (; !e && count > 0; count--, left--, next++) {
        if (left == 0) {
            e = hf_update_run(c, hf_str("ids:next"), NULL, take, &b, &err);
            next = b.first;
            left = b.size;
        }
        if (!e)
            printf("%lld\n", next);
    }
    if (e)
        fprintf(stderr, "%s\n", err.message);
    hf_client_free(c);
    return e != 0;
}
