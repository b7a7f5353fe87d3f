/* SPDX-License-Identifier: MIT
 * signals.h - signals as events: blocked everywhere, read from a descriptor. */
#ifndef CLI_SIGNALS_H
#define CLI_SIGNALS_H

#include <signal.h>

struct signals {
    sigset_t         original; /* the mask that we were started with */
    sigset_t         wanted;   /* what we take notice of */
    struct sigaction sigpipe, sigchld;
};

/* Block everything that is read as an event. To be called before the library starts its threads,
 * which inherit the mask. A signal that we were started with as ignored (nohup(1), & in a script)
 * stays ignored, here and in the child. */
void signals_block(struct signals *s);

/* A close-on-exec descriptor for those of `which` (0-terminated) that are wanted, to be read by
 * platform_signal_read(); -1 and errno. */
int signals_fd(const struct signals *s, const int *which);
/* From now on it is for these; who polls it meanwhile sees those of them that have come. */
void signals_fd_set(int fd, const struct signals *s, const int *which);

/* In a forked child: everything as it was when we were started. */
void signals_restore(const struct signals *s);

/* Stop this process, or our whole process group, by sig, which is blocked. Comes back when it is
 * continued, or at once when sig does not stop it (the kernel ignores SIGTSTP and its like in an
 * orphaned process group). */
void signals_stop(int sig, int group);

extern const int signals_ending[];  /* end a wait */
extern const int signals_running[]; /* while the child runs */

#endif
