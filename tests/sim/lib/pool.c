/* SPDX-License-Identifier: MIT
 * pool.c - memory for one thread. A piece knows its class; one that is too large for all of them is
 * malloc's.
 */
#include "sim/lib/pool.h"

#include <stdlib.h>
#include <string.h>

#include "harness/t.h"

#if T_ADDRESS_SANITIZER

void *pool_get(size_t n)
{
    return malloc(n);
}

void *pool_resize(void *p, size_t n)
{
    return realloc(p, n);
}

void pool_free(void *p)
{
    free(p);
}

#else

#define STEP    16
#define SMALL   2048                  /* up to this there is a class for each step, */
#define SMALLS  (SMALL / STEP)
#define CLASSES (SMALLS + 16)         /* and from there on for each power of two */
#define LARGEST ((size_t)SMALL << 15)
#define CHUNK   (1 << 20)

struct piece {
    size_t        class;
    struct piece *next; /* while it is free; else what is kept begins here, or behind */
};
#define HEAD STEP /* what is kept is aligned as malloc's is */

static struct piece *idle[CLASSES];
static char *chunk;
static size_t left;

/* The class of a size, and how much it has room for. */
static size_t class_of(size_t n, size_t *ret_room)
{
    if (n <= SMALL) {
        size_t class = n ? (n - 1) / STEP : 0;
        *ret_room = (class + 1) * STEP;
        return class;
    }
    size_t class = SMALLS;
    for (*ret_room = 2 * SMALL; *ret_room < n; *ret_room *= 2)
        class++;
    return class;
}

static size_t room_of(const struct piece *p)
{
    return p->class < SMALLS ? (p->class + 1) * STEP : (size_t)SMALL << (p->class - SMALLS + 1);
}

static struct piece *piece_of(void *p)
{
    return (struct piece *)((char *)p - HEAD);
}

static void *cut(size_t room)
{
    if (left < HEAD + room) {
        left = CHUNK > HEAD + room ? CHUNK : HEAD + room;
        chunk = malloc(left);
        CHECK(chunk != NULL);
    }
    void *p = chunk;
    chunk += HEAD + room;
    left -= HEAD + room;
    return p;
}

void *pool_get(size_t n)
{
    size_t room, class = class_of(n, &room);
    CHECK(n <= LARGEST);
    struct piece *p = idle[class];
    if (p)
        idle[class] = p->next;
    else
        p = cut(room);
    p->class = class;
    return (char *)p + HEAD;
}

void pool_free(void *p)
{
    if (!p)
        return;
    struct piece *piece = piece_of(p);
    piece->next = idle[piece->class];
    idle[piece->class] = piece;
}

void *pool_resize(void *p, size_t n)
{
    if (!p)
        return pool_get(n);
    size_t had = room_of(piece_of(p));
    if (n <= had && (n > had / 4 || had <= 64))
        return p;
    void *grown = pool_get(n);
    memcpy(grown, p, n < had ? n : had);
    pool_free(p);
    return grown;
}

#endif

void *pool_zero(size_t n)
{
    void *p = pool_get(n);
    memset(p, 0, n);
    return p;
}
