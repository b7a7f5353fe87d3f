/* SPDX-License-Identifier: MIT
 * name.c - names of several parts: N1 and N2 of src/topo/name.c.
 */
#include <stdlib.h>
#include <string.h>

#include "harness/t.h"
#include "topo/keys.h"

static const char *joined(const char *a, const char *b)
{
    static char buf[HF_NAME_MAX + 1];
    hf_bytes ret, part[] = { hf_str(a), hf_str(b) };
    CHECK_INT(hf_name_join(part, b ? 2 : 1, buf, sizeof buf, &ret, NULL), HF_OK);
    CHECK(ret.data == buf && strlen(buf) == ret.len);
    return buf;
}

TEST(names_read_like_paths)
{
    CHECK_STR(joined("cart:7", "qty"), "cart:7/qty");
    CHECK_STR(joined("a", ""), "a/");
    CHECK_STR(joined("", "a"), "/a");
    CHECK_STR(joined("", ""), "/");
    CHECK_STR(joined("a", NULL), "a");
    CHECK_STR(joined("a/b", "c"), "a%2Fb/c");
    CHECK_STR(joined("a", "b/c"), "a/b%2Fc");
    CHECK_STR(joined("100%", "{x}"), "100%25/%7Bx%7D");
    CHECK_STR(joined("holdfast:x", "holdfast:x"), "holdfast%3Ax/holdfast:x");
    CHECK_STR(joined("holdfast", "x"), "holdfast/x");
}

/* Every list of one to three parts of up to three bytes out of those that matter. */
struct all {
    char (*name)[48];
    size_t n;
};

static size_t text_of(unsigned k, char *ret) /* the k-th text: 0 is "" */
{
    static const char bytes[] = "/%a{2";
    size_t n = 0;
    for (; k; k = (k - 1) / 5)
        ret[n++] = bytes[(k - 1) % 5];
    return n;
}

static void add(struct all *a, const unsigned *k, size_t parts)
{
    char text[3][4], buf[HF_NAME_MAX + 1];
    hf_bytes part[3], ret;
    size_t total = 0;
    for (size_t i = 0; i < parts; i++) {
        part[i] = (hf_bytes){ text[i], text_of(k[i], text[i]) };
        total += part[i].len;
    }
    if (parts == 1 && total == 0)
        return;
    CHECK_INT(hf_name_join(part, parts, buf, sizeof buf, &ret, NULL), HF_OK);
    CHECK(ret.len < sizeof a->name[0]);
    memcpy(a->name[a->n++], ret.data, ret.len + 1);
    struct lock_keys *keys;
    CHECK_INT(keys_new("lock:", ret, &keys, NULL), HF_OK); /* N2 */
    keys_free(keys);
}

static int by_text(const void *a, const void *b)
{
    return strcmp(a, b);
}

TEST(N1_N2_different_parts_give_different_names_that_locks_accept)
{
    struct all a = { .name = calloc(100000, sizeof *a.name) };
    unsigned k[3];
    for (k[0] = 0; k[0] <= 30; k[0]++) {
        add(&a, k, 1);
        for (k[1] = 0; k[1] <= 30; k[1]++) {
            add(&a, k, 2);
            for (k[2] = 0; k[2] <= 30; k[2]++)
                add(&a, k, 3);
        }
    }
    CHECK(a.n > 30000);
    qsort(a.name, a.n, sizeof *a.name, by_text);
    for (size_t i = 1; i < a.n; i++)
        if (strcmp(a.name[i - 1], a.name[i]) == 0)
            FAIL("two lists of parts give \"%s\"", a.name[i]);
    free(a.name);
}

TEST(bytes_are_bytes)
{
    char buf[32];
    hf_bytes ret, part[] = { { "a\0b", 3 }, { "\n", 1 } };
    CHECK_INT(hf_name_join(part, 2, buf, sizeof buf, &ret, NULL), HF_OK);
    CHECK_MEM(ret.data, ret.len, "a\0b/\n", 5);
}

TEST(what_does_not_fit_is_refused_and_nothing_written_beyond)
{
    char long_one[HF_NAME_MAX + 1], buf[HF_NAME_MAX + 1], small[5] = "....";
    hf_bytes ret = { "old", 3 }, part[] = { { long_one, HF_NAME_MAX } };
    hf_error err;
    memset(long_one, 'x', sizeof long_one);
    CHECK_INT(hf_name_join(part, 1, buf, sizeof buf, &ret, &err), HF_OK);
    CHECK_INT((long long)ret.len, HF_NAME_MAX);
    part[0].len++;
    CHECK_INT(hf_name_join(part, 1, buf, sizeof buf, &ret, &err), HF_EINVAL);
    CHECK_CONTAINS(err.message, "1025 bytes");
    long_one[0] = '/'; /* three bytes */
    part[0].len = HF_NAME_MAX - 1;
    CHECK_INT(hf_name_join(part, 1, buf, sizeof buf, &ret, &err), HF_EINVAL);
    part[0] = hf_str("abc");
    CHECK_INT(hf_name_join(part, 1, small, 3, &ret, &err), HF_EINVAL);
    CHECK_CONTAINS(err.message, "needs 4");
    CHECK_MEM(small + 3, 2, ".", 2);
    CHECK_INT(hf_name_join(part, 1, small, 4, &ret, &err), HF_OK);
    CHECK_INT(hf_name_join(part, 0, buf, sizeof buf, &ret, &err), HF_EINVAL);
    part[0].len = 0;
    CHECK_INT(hf_name_join(part, 1, buf, sizeof buf, &ret, &err), HF_EINVAL);
}
