/* SPDX-License-Identifier: MIT
 * duration.c - "500ms", "10s", "1.5h", "1h30m" to milliseconds.
 *
 * Integers only: a double would round large values, and strtod() follows the locale and accepts
 * "inf", "0x1p3" and leading blanks.
 */
#include "base/err.h"

#define MAX_MS INT64_C(3155760000000) /* 100 years of 365.25 days */

static const struct {
    const char *suffix;
    int64_t     ms;
} units[] = { /* "ms" before "m" */
    { "ms", 1 }, { "s", 1000 }, { "m", 60000 }, { "h", 3600000 }, { "d", 86400000 },
    { "w", 604800000 },
};

static int is_digit(char c)
{
    return c >= '0' && c <= '9';
}

/* The unit at *text, behind which *text is moved; only a bare number alone has none. 0: no unit. */
static int64_t unit_of(const char **text, int alone)
{
    if (alone && !**text)
        return 1000;
    for (size_t i = 0; i < sizeof units / sizeof *units; i++) {
        size_t n = strlen(units[i].suffix);
        if (strncmp(*text, units[i].suffix, n) == 0) {
            *text += n;
            return units[i].ms;
        }
    }
    return 0;
}

/* A number with its unit; -1: it is none. */
static int64_t term(const char **text, int alone, int64_t *ret_unit)
{
    int64_t whole = 0, part = 0, scale = 1;
    const char *p = *text;
    if (!is_digit(*p))
        return -1;
    for (; is_digit(*p); p++) {
        whole = whole * 10 + (*p - '0');
        if (whole > MAX_MS)
            return -1;
    }
    if (*p == '.') {
        if (!is_digit(*++p))
            return -1;
        for (; is_digit(*p); p++) {
            if (scale < 1000000000) { /* part * ms stays below 10^18; later digits mean nothing */
                part = part * 10 + (*p - '0');
                scale *= 10;
            }
        }
    }
    *ret_unit = unit_of(&p, alone);
    *text = p;
    if (!*ret_unit || whole > MAX_MS / *ret_unit)
        return -1;
    /* Upwards, so that what is more than nothing does not become nothing. */
    return whole * *ret_unit + (part * *ret_unit + scale - 1) / scale;
}

/* "1h30m": each unit smaller than the one before it. */
static hf_err parse(const char *text, int64_t *ret_ms)
{
    int64_t sum = 0, before = INT64_MAX, unit = 0;
    const char *p = text;
    if (!text || !ret_ms)
        return HF_EINVAL;
    do {
        int64_t ms = term(&p, p == text, &unit);
        if (ms < 0 || unit >= before || ms > MAX_MS - sum)
            return HF_EINVAL;
        sum += ms;
        before = unit;
    } while (*p);
    *ret_ms = sum;
    return HF_OK;
}

hf_err hf_duration_parse(const char *text, int64_t *ret_ms, hf_error *reterr)
{
    char shown[60];
    hf_err e = parse(text, ret_ms);
    if (!e)
        return HF_OK;
    return !text ? err_set(reterr, e, "no duration was given")
                 : err_set(reterr, e, "%s is not a duration: write 500ms, 10s, 1.5h, 1h30m or 1d",
                           err_quote(shown, sizeof shown, text, strlen(text)));
}
