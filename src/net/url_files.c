/* SPDX-License-Identifier: MIT
 * url_files.c - the files that a URL names, wherever the process goes.
 */
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/err.h"
#include "base/mem.h"
#include "net/url.h"

static hf_err make_absolute(char **file, const char *here, hf_error *reterr)
{
    if (!*file || **file == '/')
        return HF_OK;
    size_t size = strlen(here) + 1 + strlen(*file) + 1;
    char *whole = mem_alloc(size);
    if (!whole)
        return err_set(reterr, HF_ENOMEM, "out of memory");
    snprintf(whole, size, "%s/%s", here, *file);
    mem_free(*file);
    *file = whole;
    return HF_OK;
}

hf_err url_resolve_files(struct url *u, hf_error *reterr)
{
    char **files[] = { &u->cacert, &u->cert, &u->key };
    char here[PATH_MAX] = "";
    hf_err e = HF_OK;
    bool relative = false;
    for (size_t i = 0; i < sizeof files / sizeof *files; i++)
        relative |= *files[i] && **files[i] != '/';
    if (!relative || !getcwd(here, sizeof here))
        return HF_OK; /* a folder without a name: they are found from it as long as we stay */
    for (size_t i = 0; i < sizeof files / sizeof *files && !e; i++)
        e = make_absolute(files[i], here, reterr);
    return e;
}
