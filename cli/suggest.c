/* SPDX-License-Identifier: MIT
 * suggest.c - what was probably meant by a word that we do not know. */
#include "suggest.h"

#include <string.h>

enum { LONGEST = 63 };

static size_t least(size_t a, size_t b)
{
    return a < b ? a : b;
}

size_t suggest_distance(const char *a, const char *b)
{
    size_t n = strnlen(a, LONGEST), m = strnlen(b, LONGEST);
    size_t row[3][LONGEST + 1]; /* of i, i - 1 and i - 2 letters of a */
    for (size_t j = 0; j <= m; j++)
        row[0][j] = j;
    for (size_t i = 1; i <= n; i++) {
        memcpy(row[2], row[1], sizeof row[1]);
        memcpy(row[1], row[0], sizeof row[0]);
        row[0][0] = i;
        for (size_t j = 1; j <= m; j++) {
            size_t d = row[1][j - 1] + (a[i - 1] != b[j - 1]);
            d = least(d, least(row[1][j], row[0][j - 1]) + 1);
            if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1])
                d = least(d, row[2][j - 2] + 1);
            row[0][j] = d;
        }
    }
    return row[0][m];
}

int suggest_near(const char *typed, const char *word)
{
    return suggest_distance(typed, word) <= (strlen(word) > 5 ? 2u : 1u);
}
