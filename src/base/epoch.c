/* SPDX-License-Identifier: MIT
 * epoch.c - numbers for connections and subscriptions: never 0, and never the same twice.
 */
#include "base/epoch.h"

#include <stdatomic.h>

unsigned epoch_next(void)
{
    static atomic_uint last;
    unsigned epoch = atomic_fetch_add(&last, 1) + 1;
    return epoch ? epoch : epoch_next();
}
