/* SPDX-License-Identifier: MIT
 * owner_id.c - acquire(key, timeout, uid) and release(key, uid): the caller chooses the owner id,
 * so one process can take a lock and another can release it.
 *
 *   owner_id acquire NAME DURATION UID
 *   owner_id release NAME UID
 *
 * Nothing renews such a lock: it ends after DURATION. The key's value is exactly UID, so this
 * program and programs that use SET NX PX and compare the value exclude each other.
 * Exit 0: done. 3: held by another owner, or not ours. 1: an error.
 */
#include <holdfast.h>
#include <stdio.h>
#include <string.h>

static int acquire(hf_client *c, const char *name, const char *duration, const char *uid)
{
    hf_error err;
    int64_t ttl_ms;
    uint64_t fence;

    if (hf_duration_parse(duration, &ttl_ms, NULL)) {
        fprintf(stderr, "not a duration: %s\n", duration);
        return 1;
    }
    hf_err e = hf_owner_acquire(c, hf_str(name), ttl_ms, hf_str(uid), &fence, &err);
    if (e)
        fprintf(stderr, "%s\n", err.message);
    else
        printf("%llu\n", (unsigned long long)fence);
    return e == HF_EBUSY ? 3 : e != HF_OK;
}

static int release(hf_client *c, const char *name, const char *uid)
{
    hf_error err;
    hf_err e = hf_owner_release(c, hf_str(name), hf_str(uid), &err);
    if (e)
        fprintf(stderr, "%s\n", err.message);
    return e == HF_ENOTOWNER ? 3 : e != HF_OK;
}

int main(int argc, char **argv)
{
    hf_client *c = NULL;
    hf_error err;
    int code;

    if (!(argc == 5 && strcmp(argv[1], "acquire") == 0)
        && !(argc == 4 && strcmp(argv[1], "release") == 0)) {
        fprintf(stderr, "usage: owner_id acquire NAME DURATION UID | release NAME UID\n");
        return 1;
    }
    if (hf_client_open(NULL, NULL, &c, &err)) {
        fprintf(stderr, "%s: %s\n", hf_err_name(err.code), err.message);
        return 1;
    }
    code = argc == 5 ? acquire(c, argv[2], argv[3], argv[4]) : release(c, argv[2], argv[3]);
    hf_client_free(c);
    return code;
}
