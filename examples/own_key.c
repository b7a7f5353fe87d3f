/* SPDX-License-Identifier: MIT
 * own_key.c - a cached value that stays in your own key, where your other programs read it.
 *
 *     own_key KEY [SECONDS]        how long it takes to make the value
 *
 * The key has expired. One process makes the value under the lock of the key; the others wait for
 * the lock, and then find the value. (hf_once_compute() does the same in fewer lines, but keeps
 * the value beside the lock: see rebuild.c.)
 */
#include <holdfast.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct value {
    char   text[256];
    size_t len; /* 0: there is none */
};

static hf_change read_only(void *arg, hf_bytes old, hf_bytes *ret_new)
{
    struct value *v = arg;
    (void)ret_new;
    v->len = old.len < sizeof v->text ? old.len : sizeof v->text - 1;
    if (v->len)
        memcpy(v->text, old.data, v->len);
    v->text[v->len] = '\0';
    return HF_CHANGE_NOTHING;
}

static hf_change write_it(void *arg, hf_bytes old, hf_bytes *ret_new)
{
    struct value *v = arg;
    (void)old;
    *ret_new = (hf_bytes){ v->text, v->len };
    return HF_CHANGE_SET;
}

static void make(struct value *v, unsigned seconds)
{
    fprintf(stderr, "making it ...\n");
    sleep(seconds);
    v->len = (size_t)snprintf(v->text, sizeof v->text, "made by process %ld", (long)getpid());
}

/* Under the lock: look again, since the one before us may have made it. */
static hf_err rebuild(hf_client *c, hf_lock *lock, hf_bytes key, unsigned seconds, struct value *v,
                      hf_error *err)
{
    hf_update_opts ten_seconds = { .size = sizeof ten_seconds, .ttl_ms = 10000 };
    hf_err e = hf_update_run(c, key, NULL, read_only, v, err);
    if (e || v->len)
        return e;
    make(v, seconds);
    if (!hf_lock_is_held(lock)) /* not for certain: ask */
        e = hf_lock_verify(lock, err);
    if (e) /* lost while we made it: another one makes it now */
        return e;
    return hf_update_run(c, key, &ten_seconds, write_it, v, err);
}

int main(int argc, char **argv)
{
    hf_bytes key = hf_str(argc > 1 ? argv[1] : "report");
    unsigned seconds = argc > 2 ? (unsigned)atoi(argv[2]) : 3;
    struct value v = { .len = 0 };
    hf_client *c = NULL;
    hf_lock *lock = NULL;
    hf_error err;
    int e = hf_client_open(NULL, NULL, &c, &err)
            || hf_update_run(c, key, NULL, read_only, &v, &err); /* most callers end here */
    if (!e && !v.len) {
        e = hf_lock_open(c, key, NULL, &lock, &err) || hf_lock_acquire(lock, 60000, NULL, &err);
        if (!e) {
            e = rebuild(c, lock, key, seconds, &v, &err) != HF_OK;
            hf_lock_release(lock, NULL);
        }
    }
    if (e)
        fprintf(stderr, "%s\n", err.message);
    else
        printf("%s\n", v.text);
    hf_lock_free(lock);
    hf_client_free(c);
    return e;
}
