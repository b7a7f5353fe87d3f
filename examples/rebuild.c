/* SPDX-License-Identifier: MIT
 * rebuild.c - a cached report: one process makes it, all others get it.
 *
 *     rebuild [SECONDS]        how long it takes to make the report
 *
 * Run it in several terminals at once, and again within ten seconds.
 */
#include <holdfast.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

struct report {
    unsigned seconds;
    char     text[128];
};

static hf_err make_report(void *arg, hf_lock *lock, hf_bytes *ret_value, hf_error *reterr)
{
    struct report *r = arg;
    (void)reterr; /* if this can fail: say why here, and return an error of your choice */
    fprintf(stderr, "making it ...\n");
    for (unsigned i = 0; i < r->seconds; i++) {
        sleep(1);
        if (!hf_lock_is_held(lock)) /* stop: the value would not be cached */
            return HF_ELOST;
    }
    snprintf(r->text, sizeof r->text, "report made by process %ld under number %llu\n",
             (long)getpid(), (unsigned long long)hf_lock_fence(lock));
    *ret_value = hf_str(r->text);
    return HF_OK;
}

int main(int argc, char **argv)
{
    struct report r = { .seconds = argc > 1 ? (unsigned)atoi(argv[1]) : 3 };
    hf_once_opts o = { .size = sizeof o, .ttl_ms = 10000, .stale_ms = 60000 };
    hf_client *c = NULL;
    hf_value *v = NULL;
    hf_error err;
    int e = hf_client_open(NULL, NULL, &c, &err)
            || hf_once_compute(c, hf_str("example-report"), &o, 60000, make_report, &r, &v, &err);

    if (e)
        fprintf(stderr, "%s\n", err.message);
    else
        printf("%s(%s, %.1f s old)\n", (char *)v->data,
               v->computed ? "made now"
               : v->fresh_ms > 0 ? "cached" : "an old one, for the time being",
               (double)v->age_ms / 1000);
    hf_value_free(v);
    hf_client_free(c);
    return e;
}
