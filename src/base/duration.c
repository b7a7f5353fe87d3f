/* SPDX-License-Identifier: MIT
 * duration.c - "500ms", "10s", "1.5h" to milliseconds.
 *
 * Integers only: a double would round large values, and strtod() follows the locale and accepts
 * "inf", "0x1p3" and leading blanks.
 */
#include "base/err.h"

#define MAX_MS INT64_C(3155760000000) /* 100 years of 365.25 days */

static const struct {
    const char *suffix;
    int64_t     ms;
} units[] = {
    { "", 1000 }, { "ms", 1 }, { "s", 1000 }, { "m", 60000 }, { "h", 3600000 }, { "d", 86400000 },
};

static int is_digit(char c)
{
    return c >= '0' && c <= '9';
}

static hf_err parse(const char *text, int64_t *ret_ms)
{
    int64_t whole = 0, part = 0, scale = 1;

    if (!text || !ret_ms || !is_digit(*text))
        return HF_EINVAL;
    for (; is_digit(*text); text++) {
        whole = whole * 10 + (*text - '0');
        if (whole > MAX_MS)
            return HF_EINVAL;
    }
    if (*text == '.') {
        if (!is_digit(*++text))
            return HF_EINVAL;
        for (; is_digit(*text); text++) {
            if (scale < 1000000000) { /* part * ms stays below 10^17; later digits mean nothing */
                part = part * 10 + (*text - '0');
                scale *= 10;
            }
        }
    }
    for (size_t i = 0; i < sizeof units / sizeof *units; i++) {
        if (strcmp(text, units[i].suffix) != 0)
            continue;
        if (whole > MAX_MS / units[i].ms)
            return HF_EINVAL;
        /* Upwards, so that what is more than nothing does not become nothing. */
        int64_t ms = whole * units[i].ms + (part * units[i].ms + scale - 1) / scale;
        if (ms > MAX_MS)
            return HF_EINVAL;
        *ret_ms = ms;
        return HF_OK;
    }
    return HF_EINVAL;
}

hf_err hf_duration_parse(const char *text, int64_t *ret_ms, hf_error *reterr)
{
    char shown[60];
    hf_err e = parse(text, ret_ms);
    if (!e)
        return HF_OK;
    return !text ? err_set(reterr, e, "no duration was given")
                 : err_set(reterr, e, "%s is not a duration: write 500ms, 10s, 1.5h or 1d",
                           err_quote(shown, sizeof shown, text, strlen(text)));
}
