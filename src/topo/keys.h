/* SPDX-License-Identifier: MIT
 * keys.h - which keys on the server belong to a lock.
 *
 * key = prefix + name. A lock's companions are {key}:suffix, or key:suffix when the key already
 * holds a {tag}: always in the key's own cluster slot, and never the key of another lock, because
 * names that would collide with one are refused. (A key with a } but no tag is escaped there.)
 */
#ifndef TOPO_KEYS_H
#define TOPO_KEYS_H

#include "base/err.h"
#include "base/tree.h"
#include "topo/scope.h"

#define KEYS_NAME_MAX HF_NAME_MAX
#define KEYS_VALUE    ":c" /* hf_once_compute(): the value, beside its lock */
#define KEYS_UPDATED  ":u" /* hf_update_run(): a client's last one, beside the key */

/* The lock key and its companions. */
enum lock_key {
    KEY_LOCK,  /* a string: token:fence:grace, or a caller-chosen owner id */
    KEY_OWN,   /* with a caller-chosen id: token:fence */
    KEY_TOMB,  /* sorted set: tokens whose requests were given up, by the time they may be
                  forgotten */
    KEY_QUEUE, /* sorted set: who waits, token:grace:claim:nonce:owner, by ticket */
    KEY_ABSENT, /* since when the holder has been seen absent, and in which reign */
    KEY_COUNT
};

struct lock_keys {
    hf_bytes key[KEY_COUNT];
    bool     braced; /* each companion is {key}suffix, nothing else */
    hf_bytes name; /* the tail of key[KEY_LOCK] */
    struct scope *scope; /* whose counter it uses */
    unsigned users; /* of whoever shares it; names.c, as the next */
    struct tree_node node;
    char     bytes[];
};

/* HF_EINVAL with the reason: empty, too long, reserved, could collide. HF_ENOMEM. */
hf_err keys_new(const char *prefix, hf_bytes name, struct lock_keys **ret, hf_error *reterr);
struct lock_keys *keys_free(struct lock_keys *k);

/* prefix + "holdfast:" + tail, a key that no lock can have; to be freed. NULL: no memory. */
char *keys_reserved(const char *prefix, const char *tail);

/* The companion of an arbitrary key: {key}suffix, or keysuffix when it holds a {tag}; to be
 * freed. */
char *keys_companion(hf_bytes key, const char *suffix, size_t *ret_len);

/* Whether this key, found on the server under the prefix, can be a lock's own key. */
int keys_is_lock(const char *prefix, hf_bytes key);

#endif
