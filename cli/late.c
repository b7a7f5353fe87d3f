/* SPDX-License-Identifier: MIT
 * late.c - a library that one command needs, loaded when that runs: all others start without it. */
#include "late.h"

#include "exitcode.h"
#include "message.h"

#include <dlfcn.h>
#include <string.h>

static int missing(const char *cmd, const char *library, const char *package)
{
    const char *why = dlerror();
    msg_error("%s needs the library %s, which cannot be loaded (%s): install it (Debian: apt-get "
              "install %s)", cmd, library, why ? why : "no reason given", package);
    return EX_SYSTEM;
}

int late_load(const char *cmd, const char *library, const char *package, const struct late *fn,
              size_t n)
{
    void *handle = dlopen(library, RTLD_NOW | RTLD_LOCAL);
    if (!handle)
        return missing(cmd, library, package);
    for (size_t i = 0; i < n; i++) {
        void *function = dlsym(handle, fn[i].name);
        if (!function)
            return missing(cmd, library, package);
        memcpy(fn[i].place, &function, sizeof function);
    }
    return 0;
}
