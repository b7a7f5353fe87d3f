/* SPDX-License-Identifier: MIT
 * quorum_words.c - why servers of a quorum count for nothing, in few words.
 */
#include "topo/quorum_words.h"

#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#define WHY_MAX 110
#define MORE    sizeof "; and 64 more servers"

/* The reason without the address, which stands in front of it anyway: so that equal ones are. */
static const char *own_words(const struct quorum_reason *r)
{
    const char *at = strstr(r->why, r->shown);
    if (!at)
        return r->why;
    bool first = at == r->why;
    at += strlen(r->shown);
    if (first && *at == ' ')
        return at + 1;
    at += *at == '"';
    if (*at != ':') /* it is a part of the sentence */
        return r->why;
    at += strspn(at, ": ");
    return *at ? at : r->why;
}

/* As much of text as fits, in whole words. */
static size_t whole_words(const char *text, size_t room)
{
    size_t n = strlen(text);
    if (n <= room)
        return n;
    n = room;
    while (n > 0 && text[n] != ' ')
        n--;
    while (n > 0 && strchr(" :,;", text[n - 1]))
        n--;
    return n;
}

static bool told_before(const struct quorum_reason *r, size_t i)
{
    for (size_t k = 0; k < i; k++)
        if (r[k].why && strcmp(own_words(&r[k]), own_words(&r[i])) == 0)
            return true;
    return false;
}

/* All that have the reason of r[i], and the reason; how many they are. */
static size_t one_group(const struct quorum_reason *r, size_t n, size_t i, char *buf, size_t size)
{
    const char *why = own_words(&r[i]);
    size_t count = 0, used = 0;
    for (size_t k = i; k < n; k++) {
        if (!r[k].why || strcmp(own_words(&r[k]), why) != 0)
            continue;
        if (used < size)
            used += (size_t)snprintf(buf + used, size - used, "%s%s", count ? ", " : "; ",
                                     r[k].shown);
        count++;
    }
    size_t len = whole_words(why, WHY_MAX);
    if (used < size)
        snprintf(buf + used, size - used, ": %.*s%s", (int)len, why, why[len] ? " ..." : "");
    return count;
}

const char *quorum_words(const struct quorum_reason *r, size_t n, char *buf, size_t size)
{
    size_t used = 0, left_out = 0;
    buf[0] = '\0';
    for (size_t i = 0; i < n; i++) {
        char group[2048];
        if (!r[i].why || told_before(r, i))
            continue;
        size_t count = one_group(r, n, i, group, sizeof group), len = strlen(group);
        if (used + len + MORE < size) {
            memcpy(buf + used, group, len + 1);
            used += len;
        } else {
            left_out += count;
        }
    }
    if (left_out)
        snprintf(buf + used, size - used, "; and %zu more server%s", left_out,
                 left_out > 1 ? "s" : "");
    return buf;
}
