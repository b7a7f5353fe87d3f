/* SPDX-License-Identifier: MIT
 * openssl.c - loading OpenSSL.
 */
#define OPENSSL_OWN_NAMES
#include "net/openssl.h"

#include "base/err.h"

#ifdef OPENSSL_LINKED

hf_err openssl_load(hf_error *reterr)
{
    (void)reterr;
    return HF_OK;
}

#else

#include <dlfcn.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#define TEXT_OF(x) #x
#define TEXT(x)    TEXT_OF(x)
/* Of the release whose headers we were compiled with: all that is compatible has this name. */
#define LIBSSL     "libssl.so." TEXT(OPENSSL_SHLIB_VERSION)

struct openssl openssl;

static pthread_once_t once = PTHREAD_ONCE_INIT;
static bool loaded;
static char why[200];

static const struct {
    const char *name;
    void     (**place)(void);
} functions[] = {
#define ROW(name) { #name, (void (**)(void))&openssl.name },
    OPENSSL_FUNCTIONS(ROW)
#undef ROW
};

static void note_why(void)
{
    const char *text = dlerror();
    snprintf(why, sizeof why, "%s", text ? text : LIBSSL);
}

/* It stays loaded: a stream of another thread may use it until the very end. */
static void load(void)
{
    void *handle = dlopen(LIBSSL, RTLD_NOW | RTLD_LOCAL);
    if (!handle) {
        note_why();
        return;
    }
    for (size_t i = 0; i < sizeof functions / sizeof functions[0]; i++) {
        void *function = dlsym(handle, functions[i].name); /* or in libcrypto, which it needs */
        if (!function) {
            note_why();
            return;
        }
        memcpy(functions[i].place, &function, sizeof function);
    }
    loaded = true;
}

hf_err openssl_load(hf_error *reterr)
{
    pthread_once(&once, load);
    if (loaded)
        return HF_OK;
    return err_set(reterr, HF_ESYS, "TLS needs OpenSSL, which cannot be loaded (%s): install "
                   LIBSSL, why);
}

#endif
