/* SPDX-License-Identifier: MIT
 * name.c - one name of several parts: a lock on a field, a row, a path.
 *
 *  N1  Different lists of parts give different names.
 *  N2  What is returned is a name that every lock call accepts, if the prefix has no braces.
 */
#include <stdio.h>
#include <string.h>

#include "topo/keys.h"

#define RESERVED "holdfast:"

struct out {
    char  *buf;
    size_t size, len; /* len goes on counting when the buffer is full */
};

static void put(struct out *o, char byte)
{
    if (o->len < o->size)
        o->buf[o->len] = byte;
    o->len++;
}

static void put_escaped(struct out *o, unsigned char byte)
{
    char text[4];
    snprintf(text, sizeof text, "%%%02X", byte);
    for (const char *p = text; *p; p++)
        put(o, *p);
}

/* With a brace a name could be taken for another lock's companion; with the reserved beginning it
 * would be refused. */
static void put_part(struct out *o, hf_bytes part, int first)
{
    const char *p = part.data;
    size_t colon = sizeof RESERVED - 2;
    int reserved = first && part.len > colon && memcmp(p, RESERVED, colon + 1) == 0;
    for (size_t i = 0; i < part.len; i++) {
        if (p[i] == '/' || p[i] == '%' || p[i] == '{' || p[i] == '}' || (reserved && i == colon))
            put_escaped(o, (unsigned char)p[i]);
        else
            put(o, p[i]);
    }
}

hf_err hf_name_join(const hf_bytes *part, size_t parts, char *buf, size_t size, hf_bytes *ret,
                    hf_error *reterr)
{
    struct out o = { buf, size, 0 };
    if (!part || !parts || !buf || !ret)
        return err_set(reterr, HF_EINVAL, "a name needs at least one part and a place to be put");
    for (size_t i = 0; i < parts; i++) {
        if (i)
            put(&o, '/');
        put_part(&o, part[i], i == 0);
    }
    if (o.len == 0)
        return err_set(reterr, HF_EINVAL, "the name would be empty: give a part that is not");
    if (o.len > HF_NAME_MAX)
        return err_set(reterr, HF_EINVAL,
                       "the name has %zu bytes, escaped: at most %d are allowed. Use a digest of "
                       "the long part", o.len, HF_NAME_MAX);
    if (o.len >= size)
        return err_set(reterr, HF_EINVAL, "the buffer has %zu bytes and needs %zu", size,
                       o.len + 1);
    buf[o.len] = '\0';
    *ret = (hf_bytes){ buf, o.len };
    return HF_OK;
}
