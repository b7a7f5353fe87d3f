/* SPDX-License-Identifier: MIT
 * duration.c - fuzz: a duration is what exact arithmetic makes of it, or is refused.
 */
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "holdfast.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define MAX_MS INT64_C(3155760000000)

/* In nanounits of 10^-9 ms, which every fraction of nine digits is a whole number of. The same
 * grammar, written from its description: numbers with units that get smaller. */
struct sum {
    __int128 ms;
    bool     fine;
};

static const char *unit_at(const char *p, int64_t *ret_ms)
{
    static const struct { const char *name; int64_t ms; } units[] = {
        { "w", 604800000 }, { "d", 86400000 }, { "h", 3600000 }, { "ms", 1 }, { "m", 60000 },
        { "s", 1000 },
    };
    for (size_t i = 0; i < sizeof units / sizeof *units; i++) {
        size_t n = strlen(units[i].name);
        if (strncmp(p, units[i].name, n) == 0) {
            *ret_ms = units[i].ms;
            return p + n;
        }
    }
    return NULL;
}

static struct sum expected(const char *p)
{
    struct sum s = { 0, *p != '\0' };
    int64_t before = INT64_MAX, unit = 0;
    bool first = true;
    for (; *p && s.fine; first = false) {
        size_t whole = strspn(p, "0123456789"), part = 0;
        __int128 n = 0, f = 0, scale = 1;
        for (size_t i = 0; i < whole && n < MAX_MS * 1000; i++)
            n = n * 10 + (p[i] - '0');
        const char *q = p + whole;
        if (*q == '.') {
            part = strspn(++q, "0123456789");
            for (size_t i = 0; i < part && i < 9; i++, scale *= 10)
                f = f * 10 + (q[i] - '0');
            s.fine = part > 0;
            q += part;
        }
        const char *end = first && !*q ? (unit = 1000, q) : unit_at(q, &unit);
        s.fine &= whole > 0 && end && unit < before;
        if (!s.fine)
            break;
        s.ms += n * unit + (f * unit + scale - 1) / scale;
        s.fine = s.ms <= MAX_MS;
        before = unit;
        p = end;
    }
    return s;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char *text = malloc(size + 1);
    hf_error e = { 0 };
    int64_t ms = -1;
    if (!text)
        abort();
    memcpy(text, data, size);
    text[size] = '\0';
    struct sum want = expected(text);
    hf_err err = hf_duration_parse(text, &ms, &e);
    if ((err == HF_OK) != want.fine || (!err && (__int128)ms != want.ms))
        abort();
    if (err && (ms != -1 || err != HF_EINVAL || !e.message[0]))
        abort();
    for (const char *p = e.message; err && *p; p++)
        if ((unsigned char)*p < ' ' || *p == 0x7f)
            abort();
    free(text);
    return 0;
}
