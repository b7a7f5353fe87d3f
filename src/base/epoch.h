/* SPDX-License-Identifier: MIT
 * epoch.h - numbers for connections and subscriptions: never 0, and never the same twice.
 */
#ifndef BASE_EPOCH_H
#define BASE_EPOCH_H

/* The next one of this process. (After four thousand million they begin anew.) */
unsigned epoch_next(void);

#endif
