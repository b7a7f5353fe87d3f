/* SPDX-License-Identifier: MIT
 * why.h - shorthands of the tests of hf_why().
 */
#ifndef HARNESS_WHY_H
#define HARNESS_WHY_H

#include "harness/live.h"

static inline hf_why_info *why_of(hf_client *c, const char *name)
{
    hf_why_info *why = NULL;
    CHECK_HF(hf_why(c, hf_str(name), 0, &why, &err), HF_OK);
    CHECK(why && why->cause && why->text && why->text[0]);
    return why;
}

static inline int is_cause(hf_client *c, const char *name, const char *cause)
{
    hf_why_info *why = why_of(c, name);
    int is = strcmp(why->cause, cause) == 0;
    hf_why_free(why);
    return is;
}

/* The cause, and that its words contain text. */
static inline void check_why(hf_client *c, const char *name, const char *cause, const char *text)
{
    hf_why_info *why = why_of(c, name);
    CHECK_STR(why->cause, cause);
    if (!strstr(why->text, text))
        FAIL("\"%s\" is not in \"%s\"", text, why->text);
    CHECK(why->advice || strcmp(cause, "free") == 0);
    hf_why_free(why);
}

#endif
