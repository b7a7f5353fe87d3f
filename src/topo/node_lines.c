/* SPDX-License-Identifier: MIT
 * node_lines.c - the lines of CLUSTER NODES.
 *
 *     ID ADDRESS FLAGS MASTER PING PONG EPOCH LINK SLOTS...
 */
#include "topo/node_lines.h"

#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "topo/slot.h"

enum { WORD_ID, WORD_ADDRESS, WORD_FLAGS, WORD_MASTER, WORD_EPOCH = 6, WORD_LINK, WORDS };

static bool read_line(char *text, struct node_line *ret)
{
    char *word[WORDS] = { 0 }, *rest = text;
    for (int n = 0; n < WORDS; n++)
        if (!(word[n] = strsep(&rest, " ")))
            return false;
    *ret = (struct node_line){ .id = word[WORD_ID], .address = word[WORD_ADDRESS],
                               .master = word[WORD_MASTER], .flags = word[WORD_FLAGS],
                               .epoch = strtoull(word[WORD_EPOCH], NULL, 10),
                               .connected = strcmp(word[WORD_LINK], "connected") == 0,
                               .rest = rest };
    return true;
}

hf_err node_lines_read(const struct reply *rp, void (*each)(void *arg, struct node_line *line),
                       void *arg)
{
    struct node_line line;
    if (rp->type != REPLY_BULK)
        return HF_EPROTO;
    AUTO(mem_freep) char *copy = mem_copy(rp->str, rp->len);
    if (!copy)
        return HF_ENOMEM;
    for (char *rest = copy, *text; (text = strsep(&rest, "\n"));)
        if (read_line(text, &line))
            each(arg, &line);
    return HF_OK;
}

bool node_line_is(const struct node_line *line, const char *flag)
{
    size_t len = strlen(flag);
    for (const char *p = line->flags; p; p = strchr(p, ',')) {
        p += *p == ',';
        if (strncmp(p, flag, len) == 0 && (p[len] == ',' || p[len] == '\0'))
            return true;
    }
    return false;
}

/* "7", "100-199"; of itself a server also tells "[7->-ID]", "[7-<-ID]": going, coming. */
static bool read_slots(const char *word, unsigned *ret_first, unsigned *ret_last, bool *ret_moves)
{
    char *end;
    bool moves = word[0] == '[';
    const char *digits = word + (moves ? 1 : 0);
    unsigned long first = strtoul(digits, &end, 10), last = first;
    if (end == digits)
        return false;
    if (*end == '-' && !moves)
        last = strtoul(end + 1, NULL, 10);
    *ret_first = (unsigned)first;
    *ret_last = (unsigned)last;
    *ret_moves = moves;
    return first <= last && last < SLOT_COUNT;
}

bool node_line_slots(struct node_line *line, unsigned *ret_first, unsigned *ret_last,
                     bool *ret_moves)
{
    for (char *word; (word = strsep(&line->rest, " "));)
        if (read_slots(word, ret_first, ret_last, ret_moves))
            return true;
    return false;
}
