/* SPDX-License-Identifier: MIT
 * doctor.h - what hf_doctor_examine() finds, as lines to look for.
 *
 *     struct logbook log = LOGBOOK;
 *     diagnose(&log, url);
 *     CHECK_CONTAINS(log.text, "|replicas|");
 */
#ifndef HARNESS_DOCTOR_H
#define HARNESS_DOCTOR_H

#include "harness/live.h"

/* Each finding is a line: [grade] where|topic|text|advice. */
static inline void note_finding(const hf_finding *f, void *arg)
{
    char line[1200];
    snprintf(line, sizeof line, "[%d] %s|%s|%s|%s", (int)f->grade, f->where, f->topic, f->text,
             f->advice ? f->advice : "");
    logbook_add(arg, HF_LOG_INFO, line);
}

static inline void ignore_finding(const hf_finding *f, void *arg)
{
    (void)f;
    (void)arg;
}

static inline void diagnose(struct logbook *log, const char *url)
{
    log->len = 0;
    log->text[0] = '\0';
    CHECK_HF(hf_doctor_examine(url, NULL, note_finding, log, &err), HF_OK);
    CHECK(log->len < sizeof log->text);
}

/* A cluster where all is well may be a moment away: who was just restarted or moved. */
static inline int is_well(struct logbook *log, const char *url)
{
    diagnose(log, url);
    return !logbook_has(log, "[2]") && !logbook_has(log, "[3]");
}

static inline void diagnose_well(struct logbook *log, const char *url)
{
    if (!is_well(log, url))
        FAIL("something is told that is not there:\n%s", log->text);
}

/* A line that has both in it. */
static inline int has_line(const struct logbook *log, const char *begin, const char *part)
{
    char *all = strdup(log->text), *save = NULL;
    int has = 0;
    for (char *line = strtok_r(all, "\n", &save); line && !has; line = strtok_r(NULL, "\n", &save))
        has = strstr(line, begin) && strstr(line, part);
    free(all);
    return has;
}

/* A line "[grade] where|..." that has this in it. where NULL: the cluster as a whole. */
static inline int found(struct logbook *log, int grade, const struct server *where,
                        const char *part)
{
    char begin[64];
    if (where)
        snprintf(begin, sizeof begin, "[%d] 127.0.0.1:%d|", grade, server_port(where));
    else
        snprintf(begin, sizeof begin, "[%d] cluster|", grade);
    return has_line(log, begin, part);
}

#define CHECK_FOUND(log, grade, where, part)                                              \
    do {                                                                                  \
        if (!found(log, grade, where, part))                                              \
            FAIL("not found: [%d] %s, in\n%s", grade, part, (log)->text);                 \
    } while (0)

#endif
