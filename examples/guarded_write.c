/* SPDX-License-Identifier: MIT
 * guarded_write.c - a holder that was paused too long cannot overwrite what its successor wrote.
 *
 * Two workers want one lock. The first gets it and is then "paused" for longer than its lease, as a
 * virtual machine or a long garbage collection could do. The second takes the lock and writes. When
 * the first wakes up and writes, its number is smaller and the write is refused.
 */
#include <holdfast.h>
#include <stdio.h>

#define KEY "report:today" /* used as it is, without the prefix of locks */

static int fail(const hf_error *err)
{
    fprintf(stderr, "%s: %s\n", hf_err_name(err->code), err->message);
    return 1;
}

/* Both workers in one process, to keep the example short. */
static int show(hf_lock *slow, hf_lock *quick, hf_client *c)
{
    hf_error err;
    uint64_t old, new;

    if (hf_lock_acquire(slow, 0, &old, &err))
        return fail(&err);
    printf("slow:  granted, number %llu; paused now\n", (unsigned long long)old);

    if (hf_lock_acquire(quick, 5000, &new, &err))
        return fail(&err);
    printf("quick: granted, number %llu\n", (unsigned long long)new);
    if (hf_guard_set(c, hf_str(KEY), hf_str("written by quick"), new, &err))
        return fail(&err);
    printf("quick: written\n");

    hf_err e = hf_guard_set(c, hf_str(KEY), hf_str("written by slow"), old, &err);
    printf("slow:  %s\n", e ? err.message : "written, which must not happen");
    return e != HF_ESTALE;
}

int main(void)
{
    hf_client *c = NULL;
    hf_lock *slow = NULL, *quick = NULL;
    hf_error err;
    hf_lock_opts o = { .size = sizeof o, .ttl_ms = 200, .no_renew = 1 };
    int failed;

    if (hf_client_open(NULL, NULL, &c, &err)
        || hf_lock_open(c, hf_str("report"), &o, &slow, &err)
        || hf_lock_open(c, hf_str("report"), NULL, &quick, &err))
        failed = fail(&err);
    else
        failed = show(slow, quick, c);
    hf_lock_free(slow);
    hf_lock_free(quick);
    hf_client_free(c);
    return failed;
}
