/* SPDX-License-Identifier: MIT
 * web.h - `holdfast web`: what the page is told. */
#ifndef CLI_WEB_H
#define CLI_WEB_H

#include "gather.h"

enum { WEB_LOCKS = 500 }; /* that the page is told of, the hottest first */

/* One look as one line of JSON, malloc()ed; NULL: out of memory. Holds: the gatherer's mu. */
char *web_state(const struct gather *g, int allow_break);

#endif
