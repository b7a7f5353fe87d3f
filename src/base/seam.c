/* SPDX-License-Identifier: MIT
 * seam.c - where time, chance and threads come from.
 */
#include "base/seam.h"

const struct seam *seam_present;

void seam_set(const struct seam *s)
{
    seam_present = s;
}
