/* SPDX-License-Identifier: MIT
 * cli_records.c - fuzz: whatever foreign hands wrote into locks, records and logs, `ls`, `status`
 * and `history` show it as harmless text, and as JSON.
 *
 * The input is replies: the first to inspect, then one to recall for each session that was found,
 * then one to past.
 */
#include <jansson.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "lock/history.h"
#include "lock/inspect.h"
#include "session/record.h"

/* Names that library and tool both have inside (mk/proof.mk). */
#define client_leave tool_client_leave
#include "../cli/listing.h"
#include "../cli/message.h"
#include "../cli/output.h"

/* How a history is printed is its own affair; here it is not asked for by a command. */
#define cmd_history fuzzed_history
#include "../cli/cmd_history.c"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { RECORDS = 8, ENTRIES = 30 };

static void must(int holds)
{
    if (!holds)
        abort();
}

/* ---- what is printed -------------------------------------------------------------------- */

static FILE *screen, *terminal;
static char *shown;
static size_t shown_len;

static void print_begin(void)
{
    screen = open_memstream(&shown, &shown_len);
    must(screen != NULL);
    terminal = stdout;
    stdout = screen;
}

/* Whole characters, none of which moves the cursor; and JSON that can be read. There a DEL may
 * stand as it is: terminals ignore it. */
static void print_end(const struct opts *o)
{
    stdout = terminal;
    must(fclose(screen) == 0);
    for (size_t i = 0; i < shown_len;) {
        bool plain = shown[i] == '\n' || (shown[i] == 0x7f && o->output != OUT_TABLE);
        size_t n = plain ? 1 : text_char((unsigned char *)shown + i, shown_len - i);
        must(n > 0);
        i += n;
    }
    for (char *p = shown; o->output != OUT_TABLE && *p;) {
        json_error_t why;
        json_t *j = json_loads(p, JSON_DISABLE_EOF_CHECK | JSON_ALLOW_NUL, &why);
        must(j != NULL);
        json_decref(j);
        p += why.position;
        p += strspn(p, "\n");
    }
    free(shown);
}

static void print_lock(const hf_inspect_info *info, int output)
{
    static const int sorts[] = { SORT_NAME, SORT_AGE, SORT_WAITERS, SORT_TTL };
    struct lock_list list = { 0 };
    struct listing ls;
    struct opts o;
    options_init(&o);
    o.output = output;
    o.waiters = 1;
    o.sort = sorts[info->name_len % 4];
    print_begin();
    listing_begin(&ls, &o, 0);
    must(listing_add(&ls, info) == 0);
    listing_end(&ls);
    print_end(&o);
    print_begin();
    must(lock_list_add(&list, info) == 0);
    locks_print(&list, &o);
    lock_list_free(&list);
    print_end(&o);
}

/* ---- what was answered ------------------------------------------------------------------ */

static bool answer(struct resp *r, struct op *op)
{
    struct reply *rp = NULL;
    if (resp_next(r, &rp) || !rp)
        return false;
    op->result = op_read(op, rp, NULL);
    return op->result == HF_OK;
}

static void check_party(const hf_party *p)
{
    must(p->age_ms >= -1 && p->lease_ms >= -1 && p->renewed_ms >= -1 && p->ttl_ms >= -2);
    must(p->grace_ms >= -1 && p->waits_ms >= -1 && p->present >= -1 && p->present <= 1);
}

static void identify(struct resp *r, const struct sights *s, int64_t now_ms)
{
    for (size_t i = 0; i < s->n && i < RECORDS; i++) {
        struct record_reading reading;
        hf_err e = record_read_begin(&reading, "lock:", s->sight[i].session,
                                     s->sight[i].sequence, s->sight[i].waits, now_ms,
                                     s->sight[i].party, 0, NULL);
        must(e == HF_OK);
        if (!answer(r, &reading.op))
            reading.op.result = HF_ECONN;
        (void)record_read_end(&reading);
        sight_complete(&s->sight[i]);
        check_party(s->sight[i].party);
    }
}

static void check_lock(struct resp *r)
{
    struct op op = { .id = OP_inspect };
    struct sights s = { 0 };
    char words[1024];
    if (answer(r, &op)) {
        must(sights_fill(&s, "lock:", hf_str("a\x1b[2J\nb"), &op.got.inspected, true));
        identify(r, &s, op.got.inspected.server_ms);
        must(hf_inspect_cause(s.info)[0] != '\0');
        hf_inspect_words(s.info, words, sizeof words);
        for (int output = OUT_TABLE; output <= OUT_JSONL; output++)
            print_lock(s.info, output);
        sights_clear(&s);
    }
    op_clear(&op);
}

static void check_past(struct resp *r)
{
    struct op op = { .id = OP_past };
    struct opts o;
    options_init(&o);
    struct history h = { .o = &o, .name = "a", .list = json_array(), .most = ENTRIES,
                         .from_unix_ms = INT64_MIN };
    if (answer(r, &op) && op.got.entries.code == ANSWER_YES) {
        const struct reply *page = op.got.entries.rp;
        for (size_t i = 1; i < page->len && i < ENTRIES; i++) {
            hf_past p = history_entry(page->item[i]);
            must(p.held_ms >= -1 && p.waited_ms >= -1 && p.pid >= 0);
            (void)each(&p, &h);
        }
        for (o.output = OUT_TABLE; o.output <= OUT_JSONL; o.output++) {
            print_begin();
            print(&h);
            print_end(&o);
        }
    }
    json_decref(h.list);
    op_clear(&op);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct resp *r = resp_new();
    must(r != NULL);
    if (!resp_feed(r, data, size)) {
        check_lock(r);
        check_past(r);
    }
    resp_free(r);
    return 0;
}
