/* SPDX-License-Identifier: MIT
 * message.h - lines on stderr, and bytes made safe to look at. */
#ifndef CLI_MESSAGE_H
#define CLI_MESSAGE_H

#include <holdfast.h>
#include <stddef.h>
#include <stdint.h>

/* -q and -v, set once from the options. */
void msg_level(int quiet, int verbose);
int  msg_verbosity(void);

/* One line "holdfast: ...", in one write. Control bytes are shown as \xNN and a password in a URL
 * as ***, whatever the line was made of. */
void msg_error(const char *fmt, ...) __attribute__((format(printf, 1, 2)));   /* always */
void msg_note(const char *fmt, ...) __attribute__((format(printf, 1, 2)));    /* not with -q */
void msg_verbose(const char *fmt, ...) __attribute__((format(printf, 1, 2))); /* only with -v */

/* A line on a terminal that the next one takes the place of, cut to the terminal's width; and the
 * end of it. A message in between wipes it. Any thread. */
void msg_status(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
void msg_status_clear(void);

/* What the command is about, for messages that do not say it: a lock, or several with commas; and
 * the server, as hf_client_url() shows it. */
void msg_about(const char *name);
void msg_server(const char *url);

/* The same with "NAME: " in front, if msg_about() gave one. */
void msg_error_about(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
void msg_note_about(const char *fmt, ...) __attribute__((format(printf, 1, 2)));

/* Print the library's message for e. If the server is to blame, it names the lock and the server.
 * Returns the exit status. */
int msg_failed(hf_err e, const hf_error *err);

/* Bytes of a valid, harmless UTF-8 character at p (n > 0 bytes there); 0: not one. */
size_t text_char(const unsigned char *p, size_t n);

/* Names are bytes. Write them as one printable word: \n and other control bytes, invalid UTF-8 and
 * the characters that turn the direction of writing become \xNN, a backslash \\. Returns buf. */
char *text_escape(char *buf, size_t size, const void *data, size_t len);
#define TEXT_ESCAPED(len) (4 * (len) + 1)

/* "350ms", "8.1s", "3m12s", "2h05m", "4d03h". Returns buf. */
char *text_duration(char *buf, size_t size, int64_t ms);

#endif
