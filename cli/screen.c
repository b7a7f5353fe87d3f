/* SPDX-License-Identifier: MIT
 * screen.c - a whole terminal to draw on, by ncurses, which is loaded when it is needed. */
#include "screen.h"

#include "exitcode.h"
#include "late.h"
#include "message.h"

#define NCURSES_NOMACROS 1
#include <curses.h>
#include <langinfo.h>
#include <locale.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>
#include <wchar.h>

#define LIBRARY "libncursesw.so.6"

#define FUNCTIONS(X)                                                                               \
    X(newterm) X(delscreen) X(endwin) X(newwin) X(delwin) X(wresize) X(resizeterm) X(keypad)       \
    X(nodelay) X(wgetch) X(wmove) X(waddnstr) X(wattrset) X(werase) X(wnoutrefresh) X(doupdate)    \
    X(cbreak) X(noecho) X(curs_set) X(start_color) X(use_default_colors) X(init_pair)              \
    X(has_colors) X(clearok) X(set_escdelay) X(reset_prog_mode) X(COLOR_PAIR)

static struct {
#define MEMBER(name) __typeof__(name) *name;
    FUNCTIONS(MEMBER)
#undef MEMBER
} cur;

static const struct late functions[] = {
#define ROW(name) { #name, (void (**)(void))&cur.name },
    FUNCTIONS(ROW)
#undef ROW
};

int screen_rows = 24, screen_columns = 80;

static struct {
    SCREEN *screen;
    WINDOW *win;
    int     utf8;
    int     row, column; /* of the cursor; row -1: not shown */
    chtype  ink[INKS];
} my;

int screen_load(const char *cmd)
{
    return late_load(cmd, LIBRARY, "libncursesw6", functions,
                     sizeof functions / sizeof functions[0]);
}

/* ---- text ---------------------------------------------------------------------------------- */

/* One character of text: its bytes and columns. Bytes that are none in this locale count as one. */
static size_t one_char(const char *text, int *ret_columns)
{
    wchar_t wc;
    mbstate_t state = { 0 };
    size_t n = mbrtowc(&wc, text, strlen(text), &state);
    if (!my.utf8 || n == (size_t)-1 || n == (size_t)-2 || n == 0) {
        n = text_char((const unsigned char *)text, strlen(text));
        *ret_columns = 1;
        return n ? n : 1;
    }
    int columns = wcwidth(wc);
    *ret_columns = columns < 0 ? 1 : columns;
    return n;
}

int screen_width(const char *text)
{
    int width = 0;
    while (*text) {
        int columns;
        text += one_char(text, &columns);
        width += columns;
    }
    return width;
}

/* A terminal of another encoding gets a ? for what it cannot show. */
static void put_char(const char *text, size_t n)
{
    if (!my.utf8 && ((unsigned char)text[0] & 0x80))
        cur.waddnstr(my.win, "?", 1);
    else
        cur.waddnstr(my.win, text, (int)n);
}

void screen_put(int row, int column, int width, enum ink ink, const char *text)
{
    int used = 0, columns = 0, whole = screen_width(text) <= width;
    if (row < 0 || row >= screen_rows || column >= screen_columns || width <= 0)
        return;
    if (column + width > screen_columns)
        width = screen_columns - column;
    cur.wmove(my.win, row, column);
    cur.wattrset(my.win, (int)my.ink[ink]);
    while (*text) {
        size_t n = one_char(text, &columns);
        if (used + columns > width - !whole)
            break;
        put_char(text, n);
        used += columns;
        text += n;
    }
    if (*text && used < width) {
        cur.waddnstr(my.win, my.utf8 ? "\xe2\x80\xa6" : "~", my.utf8 ? 3 : 1);
        used++;
    }
    for (; used < width; used++)
        cur.waddnstr(my.win, " ", 1);
    cur.wattrset(my.win, (int)my.ink[INK_PLAIN]);
}

void screen_right(int row, int column, int width, enum ink ink, const char *text)
{
    int n = screen_width(text);
    if (n < width) {
        screen_put(row, column, width - n, ink, "");
        column += width - n;
        width = n;
    }
    screen_put(row, column, width, ink, text);
}

const char *screen_bar(int eighths)
{
    static const char *const blocks[] = { " ",            "\xe2\x96\x81", "\xe2\x96\x82",
                                          "\xe2\x96\x83", "\xe2\x96\x84", "\xe2\x96\x85",
                                          "\xe2\x96\x86", "\xe2\x96\x87", "\xe2\x96\x88" };
    static const char *const plain[] = { " ", ".", ".", ":", "-", "=", "+", "*", "#" };
    int i = eighths < 0 ? 0 : eighths > 8 ? 8 : eighths;
    return my.utf8 ? blocks[i] : plain[i];
}

/* ---- the terminal -------------------------------------------------------------------------- */

static void read_size(void)
{
    struct winsize w;
    if (ioctl(STDOUT_FILENO, TIOCGWINSZ, &w) == 0 && w.ws_row > 0 && w.ws_col > 0) {
        screen_rows = w.ws_row;
        screen_columns = w.ws_col;
    }
}

static void choose_inks(void)
{
    static const struct {
        enum ink ink;
        short    colour;
    } coloured[] = { { INK_GOOD, COLOR_GREEN }, { INK_WARN, COLOR_YELLOW }, { INK_BAD, COLOR_RED },
                     { INK_NOTE, COLOR_CYAN } };
    my.ink[INK_PLAIN] = A_NORMAL;
    my.ink[INK_DIM] = A_DIM;
    my.ink[INK_BOLD] = my.ink[INK_WARN] = A_BOLD;
    my.ink[INK_BAR] = my.ink[INK_BAD] = A_REVERSE;
    my.ink[INK_GOOD] = my.ink[INK_NOTE] = A_NORMAL;
    if (!cur.has_colors() || cur.start_color() == ERR || cur.use_default_colors() == ERR)
        return;
    for (short i = 0; i < (short)(sizeof coloured / sizeof coloured[0]); i++) {
        cur.init_pair((short)(i + 1), coloured[i].colour, -1);
        my.ink[coloured[i].ink] = (chtype)cur.COLOR_PAIR(i + 1)
                                  | (coloured[i].ink == INK_BAD ? A_BOLD : A_NORMAL);
    }
}

int screen_open(void)
{
    setlocale(LC_CTYPE, "");
    my.utf8 = strcmp(nl_langinfo(CODESET), "UTF-8") == 0;
    my.screen = cur.newterm(NULL, stdout, stdin);
    if (!my.screen) {
        const char *term = getenv("TERM");
        char shown[TEXT_ESCAPED(64)];
        msg_error("this terminal cannot be drawn on (TERM is '%s'): see terminfo(5)",
                  text_escape(shown, sizeof shown, term ? term : "", term ? strnlen(term, 63) : 0));
        return EX_SYSTEM;
    }
    read_size();
    cur.resizeterm(screen_rows, screen_columns);
    cur.cbreak();
    cur.noecho();
    cur.set_escdelay(50);
    my.win = cur.newwin(0, 0, 0, 0);
    if (!my.win) {
        screen_close();
        msg_error("out of memory");
        return EX_SYSTEM;
    }
    cur.keypad(my.win, TRUE);
    cur.nodelay(my.win, TRUE);
    choose_inks();
    screen_cursor(-1, 0);
    return 0;
}

void screen_close(void)
{
    if (!my.screen)
        return;
    cur.curs_set(1);
    cur.endwin();
    if (my.win)
        cur.delwin(my.win);
    cur.delscreen(my.screen);
    my.screen = NULL;
    my.win = NULL;
}

void screen_leave(void)
{
    cur.curs_set(1);
    cur.endwin();
}

void screen_return(void)
{
    cur.reset_prog_mode();
    screen_resize();
}

void screen_resize(void)
{
    read_size();
    cur.resizeterm(screen_rows, screen_columns);
    cur.wresize(my.win, screen_rows, screen_columns);
    cur.clearok(my.win, TRUE); /* all of it anew: what the terminal did meanwhile is not known */
}

void screen_clear(void)
{
    cur.wattrset(my.win, (int)my.ink[INK_PLAIN]);
    cur.werase(my.win);
}

void screen_cursor(int row, int column)
{
    my.row = row;
    my.column = column;
}

void screen_show(void)
{
    cur.curs_set(my.row >= 0);
    if (my.row >= 0)
        cur.wmove(my.win, my.row, my.column < screen_columns ? my.column : screen_columns - 1);
    cur.wnoutrefresh(my.win);
    cur.doupdate();
}

int screen_key(void)
{
    static const int keys[][2] = {
        { KEY_UP, SKEY_UP },       { KEY_DOWN, SKEY_DOWN },       { KEY_LEFT, SKEY_LEFT },
        { KEY_RIGHT, SKEY_RIGHT }, { KEY_PPAGE, SKEY_PAGE_UP },   { KEY_NPAGE, SKEY_PAGE_DOWN },
        { KEY_HOME, SKEY_HOME },   { KEY_END, SKEY_END },         { KEY_BACKSPACE, SKEY_BACK },
        { 127, SKEY_BACK },        { 8, SKEY_BACK },              { KEY_ENTER, '\n' },
        { '\r', '\n' },
    };
    int c = cur.wgetch(my.win);
    if (c == ERR)
        return SKEY_NONE;
    for (size_t i = 0; i < sizeof keys / sizeof keys[0]; i++)
        if (keys[i][0] == c)
            return keys[i][1];
    return c < 256 ? c : SKEY_OTHER;
}
