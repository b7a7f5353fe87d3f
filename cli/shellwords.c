/* SPDX-License-Identifier: MIT
 * shellwords.c - a line as a shell would split it. */
#include "shellwords.h"

#include <string.h>

/* One word from *from on, written to `to`, which is never behind it. Returns its end. */
static char *take_word(char **from, char *to)
{
    char *p = *from, quote = '\0';
    for (; *p && (quote || !strchr(" \t\n", *p)); p++) {
        if (*p == quote) {
            quote = '\0';
        } else if (!quote && (*p == '\'' || *p == '"')) {
            quote = *p;
        } else if (*p == '\\' && p[1] && quote != '\''
                   && (!quote || strchr("\"\\$`", p[1]))) {
            *to++ = *++p;
        } else {
            *to++ = *p;
        }
    }
    *from = p;
    return to;
}

int shellwords_split(char *text, char **word, int most)
{
    char *p = text + strspn(text, " \t\n");
    int n = 0;
    while (n < most) {
        char *end;
        word[n++] = p;
        end = take_word(&p, p);
        int more = *p != '\0';
        *end = '\0';
        if (!more)
            break;
        p++;
        p += strspn(p, " \t\n");
    }
    return n;
}
