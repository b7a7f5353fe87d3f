/* SPDX-License-Identifier: MIT
 * client_url.c - which server a client is for: the argument, the environment, the machine's file.
 */
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "base/process.h"
#include "net/config.h"
#include "session/client.h"

#define REPLICAS_MAX 100

/* The password of the file's passfile, if the environment has none. */
static hf_err use_config(struct url *u, const struct config *cf, hf_error *reterr)
{
    const char *env = process_getenv("HOLDFAST_PASSWORD");
    bool passfile = cf->passfile && !u->passfile && !u->password && !(env && *env);
    if (passfile && u->topology == URL_EMBEDDED)
        return err_set(reterr, HF_ECONFIG, "configuration file %s: passfile without the url of a "
                       "server: the embedded one has no password", cf->shown);
    if (passfile)
        u->passfile = mem_copy(cf->passfile, strlen(cf->passfile));
    bool prefix = cf->prefix && !u->prefix;
    if (prefix)
        u->prefix = mem_copy(cf->prefix, strlen(cf->prefix));
    return (passfile && !u->passfile) || (prefix && !u->prefix)
               ? err_set(reterr, HF_ENOMEM, "out of memory") : HF_OK;
}

static hf_err parse_config_url(const struct config *cf, struct url **ret, hf_error *reterr)
{
    hf_err e = url_parse(cf->url, ret, reterr);
    if (e) {
        err_prefix(reterr, "configuration file %s", cf->shown);
        return e;
    }
    e = use_config(*ret, cf, reterr);
    if (e)
        *ret = url_free(*ret);
    return e;
}

/* $HOLDFAST_URL, which may be NULL but not empty. */
static hf_err env_url(const char **ret, hf_error *reterr)
{
    *ret = process_getenv("HOLDFAST_URL");
    if (!*ret || **ret)
        return HF_OK;
    return err_set(reterr, HF_ECONFIG, "HOLDFAST_URL is set but empty: name the server, or "
                   "unset it or say embedded: for locks of this machine alone");
}

static hf_err find_url(const char *text, struct url **ret, hf_error *reterr)
{
    const char *env = NULL;
    hf_err e = text ? HF_OK : env_url(&env, reterr);
    if (e || text || env)
        return e ? e : url_parse(text ? text : env, ret, reterr);
    AUTO(config_clear) struct config cf;
    e = config_read(&cf, reterr);
    return e ? e : parse_config_url(&cf, ret, reterr);
}

hf_err hf_url_default(char *buf, size_t size, hf_error *reterr)
{
    const char *env;
    if (!buf || size == 0)
        return err_set(reterr, HF_EINVAL, "no place for the URL was given");
    hf_err e = env_url(&env, reterr);
    if (e)
        return e;
    AUTO(config_clear) struct config cf = { 0 };
    e = env ? HF_OK : config_read(&cf, reterr);
    if (e)
        return e;
    const char *url = env ? env : cf.url ? cf.url : "";
    if (strlen(url) >= size)
        return err_set(reterr, HF_ELIMIT, "the URL has %zu bytes: %zu are not enough",
                       strlen(url), size);
    memcpy(buf, url, strlen(url) + 1);
    return HF_OK;
}

hf_err client_url_of(const char *text, const hf_client_opts *o, struct url **ret, hf_error *reterr)
{
    hf_err e = find_url(text, ret, reterr);
    if (e)
        return e;
    if (o->password) {
        url_set_password(*ret, o->password);
        e = (*ret)->password ? HF_OK : err_set(reterr, HF_ENOMEM, "out of memory");
    } else {
        /* The embedded server has none: the folder's permissions guard it. */
        bool embedded = (*ret)->topology == URL_EMBEDDED;
        e = url_resolve_password(*ret, embedded ? NULL : process_getenv("HOLDFAST_PASSWORD"),
                                 reterr);
    }
    if (!e)
        e = url_resolve_files(*ret, reterr);
    if (o->replicas < HF_MAJORITY || o->replicas == -1 || o->replicas > REPLICAS_MAX)
        e = err_set(reterr, HF_EINVAL, "%d replicas: give 1 to %d, HF_MAJORITY, or 0", o->replicas,
                    REPLICAS_MAX);
    if (o->replicas)
        (*ret)->replicas = o->replicas;
    if (!e && (*ret)->topology == URL_SENTINEL)
        e = url_resolve_sentinel_password(*ret, process_getenv("HOLDFAST_SENTINEL_PASSWORD"),
                                          reterr);
    if (e)
        *ret = url_free(*ret);
    return e;
}
