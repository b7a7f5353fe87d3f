/* SPDX-License-Identifier: MIT
 * screen.h - a whole terminal to draw on, by ncurses, which is loaded when it is needed. */
#ifndef CLI_SCREEN_H
#define CLI_SCREEN_H

#include <stddef.h>

enum ink {
    INK_PLAIN,
    INK_DIM,
    INK_BOLD,
    INK_BAR,  /* the line at the top, and the one that is chosen */
    INK_GOOD, /* green, yellow, red, blue, where there are colours */
    INK_WARN,
    INK_BAD,
    INK_NOTE,
    INKS
};

/* Keys that are no characters. */
enum screen_key {
    SKEY_NONE = -1,
    SKEY_UP = 1000,
    SKEY_DOWN,
    SKEY_LEFT,
    SKEY_RIGHT,
    SKEY_PAGE_UP,
    SKEY_PAGE_DOWN,
    SKEY_HOME,
    SKEY_END,
    SKEY_BACK, /* backspace */
    SKEY_OTHER
};

/* Load ncurses. 0, or an exit status after a message. */
int screen_load(const char *cmd);
/* Take the terminal, and give it back as it was. */
int  screen_open(void);
void screen_close(void);
/* Give it back for a while, as for Ctrl-Z; take it again, with whatever size it has then. */
void screen_leave(void);
void screen_return(void);

extern int screen_rows, screen_columns; /* as of screen_open(), screen_return(), screen_resize() */
void screen_resize(void);

void screen_clear(void);
/* Text in so many columns: cut, or filled up with blanks. It must be harmless (text_escape()). */
void screen_put(int row, int column, int width, enum ink ink, const char *text);
void screen_right(int row, int column, int width, enum ink ink, const char *text);
/* Where the cursor is shown; row -1: nowhere. */
void screen_cursor(int row, int column);
void screen_show(void);

/* The next key that was pressed, SKEY_NONE: none; a character or a byte of one, or screen_key. */
int screen_key(void);

/* How many columns text takes. */
int screen_width(const char *text);
/* 0 to 8 eighths of a character's height, as text. */
const char *screen_bar(int eighths);

#endif
