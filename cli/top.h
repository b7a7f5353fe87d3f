/* SPDX-License-Identifier: MIT
 * top.h - the screen of `holdfast top`: what it shows, and what it does at a key. */
#ifndef CLI_TOP_H
#define CLI_TOP_H

#include "break_call.h"
#include "gather.h"
#include "screen.h"

enum top_view { VIEW_LIST, VIEW_LOCK, VIEW_HELP };
enum top_typing { TYPING_NOT, TYPING_FILTER, TYPING_BREAK };
enum top_sort { TOP_WAITERS, TOP_WAIT, TOP_HELD, TOP_RATE, TOP_NAME, TOP_SORTS };

/* A line about one lock; holder: which of them it speaks of, -1: none. */
struct top_line {
    char     text[1500];
    enum ink ink;
    int      holder;
};

/* A break that is under way, in a thread of its own. */
struct top_break {
    hf_client *c;
    char      *name;
    size_t     name_len;
    uint64_t   fence;
    pthread_t  thread;
    int        started;
    atomic_int done;
    hf_err     result;
    char       said[BREAK_SAID];
    int        bell_fd;
};

struct top {
    struct gather   gather;
    const char     *server;
    enum top_view   view, back; /* back: where the help was called from */
    enum top_typing typing;
    enum top_sort   sort;
    int             reverse, paused;
    int             bell_fd; /* rung after each look */
    char            filter[200], typed[200];
    const struct scene_lock **row; /* what is shown: filtered and sorted */
    size_t          rows, room;
    size_t          at, first; /* the row that is chosen, and the first that fits */
    char            chosen[HF_NAME_MAX + 1];
    size_t          chosen_len;
    struct top_line *line; /* of VIEW_LOCK */
    size_t          lines, line_room, line_at, line_first;
    char            said[BREAK_SAID]; /* at the bottom; "": nothing */
    enum ink        said_ink;
    int64_t         said_until_ms;
    int64_t         away_since_ms; /* looks have failed; 0: the last has not */
    struct top_break breaking;
    int             quit;
};

/* The scene has changed, or what is wanted of it. Holds: the gatherer's mu, as all below. -1: out
 * of memory. */
int  top_refresh(struct top *t);
void top_draw(struct top *t);
void top_key(struct top *t, int key);

const char *top_sort_name(enum top_sort sort);
void top_say(struct top *t, enum ink ink, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));

/* What is behind the lock that is chosen; NULL: it is gone. */
const struct scene_lock *top_chosen(const struct top *t);

/* Of one lock, for VIEW_LOCK. -1: out of memory. */
int  top_lock_lines(struct top *t, const struct scene_lock *l);
void top_lock_draw(struct top *t, int from, int to);
/* The holder that breaking would mean; NULL: none, or not one alone. */
const hf_party *top_holder(const struct top *t);

/* A spark line of `width` looks, of a lock or (NULL) of all. */
void top_spark(const struct scene *s, const struct scene_lock *l, int width, char *buf,
               size_t size);

/* Begin to break the lock that is chosen, as was confirmed; and see whether that is done. */
void top_break_begin(struct top *t);
void top_break_look(struct top *t);

#endif
