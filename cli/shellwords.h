/* SPDX-License-Identifier: MIT
 * shellwords.h - a line as a shell would split it. */
#ifndef CLI_SHELLWORDS_H
#define CLI_SHELLWORDS_H

/* Split text, which is overwritten, at blanks that are not quoted, and take the quotes away.
 * Nothing is expanded, and the last quote may be open. Behind a blank an empty word begins. Returns
 * how many words there are, at most `most`. */
int shellwords_split(char *text, char **word, int most);

#endif
