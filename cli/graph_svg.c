/* SPDX-License-Identifier: MIT
 * graph_svg.c - who waits for whom, as a drawing.
 *
 * Columns from the left: who waits for nothing, the locks that it holds, who waits for those, and
 * so on. All text is of one width, so that its length is known here without a font. */
#include "graph.h"
#include "message.h"
#include "party.h"

#include <string.h>

enum { CHARS = 24, CHAR = 7, BOX = 38, ROW = 54, GAP = 58, EDGE = 20 };
#define WIDE (CHARS * CHAR + 20)

static const char style[] =
    "<style>svg{background:#fff;font:12px ui-monospace,'DejaVu Sans Mono',monospace}"
    "text{fill:#1b1f24}.sub{fill:#5b6570}.box{fill:#eef3fb;stroke:#5b7fb5}"
    ".party .box{fill:#f4f4f2;stroke:#8a8f96}"
    ".line{fill:none;stroke:#8a8f96;stroke-width:1.4;stroke-linejoin:round}"
    ".held{stroke-dasharray:4 3}.tip{fill:#8a8f96}.dead .box{fill:#fdecea;stroke:#c62828}"
    ".line.dead{stroke:#c62828;stroke-width:2.2}.tip.dead{fill:#c62828}"
    "@media(prefers-color-scheme:dark){svg{background:#14181d}text{fill:#e6e9ed}"
    ".sub{fill:#9aa4af}.box{fill:#1d2a3d;stroke:#6c93cf}"
    ".party .box{fill:#22262b;stroke:#7b838c}.dead .box{fill:#3c1716;stroke:#ff6b60}"
    ".line.dead{stroke:#ff6b60}.tip.dead{fill:#ff6b60}}</style>\n";

static void xml(FILE *f, const char *s)
{
    for (; *s; s++)
        switch (*s) {
        case '&': fputs("&amp;", f); break;
        case '<': fputs("&lt;", f); break;
        case '>': fputs("&gt;", f); break;
        case '"': fputs("&quot;", f); break;
        default: fputc(*s, f);
        }
}

/* At most so many characters of it; it was escaped before. What may be wide counts twice. */
static void xml_cut(FILE *f, const char *s, int most)
{
    char out[4 * CHARS + 4];
    size_t at = 0;
    int n = 0, whole = 1;
    while (*s && whole) {
        size_t len = text_char((const unsigned char *)s, strlen(s));
        int wide = len >= 3 ? 2 : 1;
        len = len ? len : 1;
        if (n + wide > most - 1 && s[len]) {
            whole = 0;
        } else {
            memcpy(out + at, s, len);
            at += len;
            n += wide;
            s += len;
        }
    }
    out[at] = '\0';
    xml(f, out);
    if (!whole)
        fputs("\xe2\x80\xa6", f);
}

static double x_of(const struct graph_node *node)
{
    return EDGE + node->depth * (double)(WIDE + GAP);
}

static double y_of(const struct graph_node *node)
{
    return EDGE + node->row * ROW;
}

static void titles(const struct graph_node *node, char *first, char *second, char *whole)
{
    char t[32] = "", kind[80];
    first[0] = second[0] = whole[0] = '\0';
    if (node->kind == NODE_MORE) {
        snprintf(first, PARTY_WORDS, "and %zu more", node->more);
        snprintf(whole, PARTY_WORDS, "%zu more wait", node->more);
    } else if (node->kind == NODE_PARTY) {
        party_short(first, PARTY_WORDS, node->party);
        party_words(whole, PARTY_WORDS, node->party);
        const char *what = node->party->info && node->party->info[0] ? node->party->info
                                                                     : node->party->program;
        if (what)
            text_escape(second, PARTY_WORDS, what, strlen(what));
    } else {
        const hf_inspect_info *info = node->lock->info;
        text_escape(first, PARTY_WORDS, node->lock->name, node->lock->name_len);
        snprintf(whole, PARTY_WORDS, "%s", first);
        if (!info || !info->holders)
            snprintf(second, PARTY_WORDS, "nobody holds it");
        else
            snprintf(second, PARTY_WORDS, "%s%s%s", party_kind(kind, sizeof kind, info),
                     node->lock->hold_ms >= 0 ? ", held for " : "",
                     node->lock->hold_ms >= 0 ? text_duration(t, sizeof t, node->lock->hold_ms)
                                              : "");
    }
}

static void box(const struct graph_node *node, FILE *f)
{
    char first[PARTY_WORDS], second[PARTY_WORDS], whole[PARTY_WORDS];
    double x = x_of(node), y = y_of(node);
    int most = node->kind == NODE_LOCK ? CHARS : CHARS - 1; /* of round boxes less fits */
    titles(node, first, second, whole);
    fprintf(f, "<g class=\"%s%s\"><title>", node->kind == NODE_LOCK ? "lock" : "party",
            node->deadlock ? " dead" : "");
    xml(f, whole);
    fprintf(f, "</title><rect class=\"box\" x=\"%.0f\" y=\"%.0f\" width=\"%d\" height=\"%d\" "
               "rx=\"%d\"/><text x=\"%.0f\" y=\"%.0f\">", x, y, WIDE, BOX,
            node->kind == NODE_LOCK ? 4 : BOX / 2, x + (node->kind == NODE_LOCK ? 8 : 14),
            y + (second[0] ? 16 : 23));
    xml_cut(f, first, most);
    if (second[0]) {
        fprintf(f, "</text><text class=\"sub\" x=\"%.0f\" y=\"%.0f\">",
                x + (node->kind == NODE_LOCK ? 8 : 14), y + 31);
        xml_cut(f, second, most);
    }
    fprintf(f, "</text></g>\n");
}

/* From right to left, into the next column; what leads elsewhere goes round in the gaps between
 * columns, and below its tree. */
static void curve(const struct graph *g, size_t i, FILE *f)
{
    const struct graph_line *l = &g->line[i];
    const struct graph_node *from = &g->node[l->from], *to = &g->node[l->to];
    const char *dead = l->deadlock ? " dead" : "", *kind = l->kind == LINE_WAITS ? "waits" : "held";
    double x = x_of(from), y = y_of(from) + BOX / 2.0, ex = x_of(to) + WIDE,
           ey = y_of(to) + BOX / 2.0;
    fprintf(f, "<path class=\"line %s%s\" d=\"M%.0f %.0f", kind, dead, x, y);
    if (from->through == i)
        fprintf(f, "C%.0f %.0f %.0f %.0f %.0f %.0f", x - GAP / 2.0, y, ex + GAP / 2.0 + 6, ey,
                ex + 6, ey);
    else
        fprintf(f, "H%.0fV%.0fH%.0fV%.0fH%.0f", x - 10, EDGE + l->lane * ROW, ex + 20, ey, ex + 6);
    fprintf(f, "\"/><path class=\"tip%s\" d=\"M%.0f %.0fl8 -4v8z\"/>\n", dead, ex, ey);
}

/* The place in the queue, beside the line where that is not. */
static void place_in_line(const struct graph *g, size_t i, FILE *f)
{
    const struct graph_line *l = &g->line[i];
    const struct graph_node *from = &g->node[l->from];
    int below = from->row > g->node[l->to].row;
    if (l->kind == LINE_WAITS && l->place != SIZE_MAX && from->through == i)
        fprintf(f, "<text class=\"sub\" text-anchor=\"end\" x=\"%.0f\" y=\"%.0f\">%zu.</text>\n",
                x_of(from) - 5, y_of(from) + BOX / 2.0 + (below ? 14 : -5), l->place);
}

void graph_print_svg(const struct graph *g, FILE *f, int whole)
{
    double width = 2 * EDGE + g->depth * (double)(WIDE + GAP) - (g->depth ? GAP - 10 : 0);
    double height = 2 * EDGE + (g->rows > 0 ? (g->rows - 1) * ROW + BOX : 0);
    fprintf(f, "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %.0f %.0f\" "
               "width=\"%.0f\" height=\"%.0f\" role=\"img\">\n<title>who waits for whom</title>\n",
            width, height, width, height);
    if (whole)
        fputs(style, f);
    if (g->n == 0 && whole)
        fprintf(f, "<text x=\"%d\" y=\"%d\">nobody waits</text>\n", EDGE, EDGE + 6);
    for (size_t i = 0; i < g->lines; i++)
        curve(g, i, f);
    for (size_t i = 0; i < g->n; i++)
        box(&g->node[i], f);
    for (size_t i = 0; i < g->lines; i++)
        place_in_line(g, i, f);
    fprintf(f, "</svg>\n");
}
