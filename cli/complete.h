/* SPDX-License-Identifier: MIT
 * complete.h - what can come next on a command line, for the completion of shells. */
#ifndef CLI_COMPLETE_H
#define CLI_COMPLETE_H

/* holdfast --complete, which is for the scripts in share/completion. typed: stdin has the line as
 * it was typed, not its words. Returns the exit status. */
int complete(int typed);

#endif
