/* SPDX-License-Identifier: MIT
 * cmd_doctor.c - holdfast doctor: is this a place that keeps the promises? */
#include "commands.h"
#include "exitcode.h"
#include "message.h"
#include "output.h"
#include "secrets.h"

#include <stdio.h>
#include <string.h>

static const char *const grades[] = { "ok", "note", "risk", "fault" };

struct report {
    const struct opts *o;
    json_t            *findings; /* not with -o jsonl: told at the end */
    char               where[320];
    int                count[4]; /* by grade */
    int                code;     /* the exit status so far */
};

/* 0 when nothing is wrong. Of several, what must be mended first: the way there, the login, the
 * settings. */
static int code_of(const hf_finding *f)
{
    if (f->grade < HF_GRADE_RISK)
        return 0;
    if (f->grade == HF_GRADE_FAULT && strcmp(f->topic, "reach") == 0)
        return EX_SERVER;
    if (f->grade == HF_GRADE_FAULT && strcmp(f->topic, "rights") == 0)
        return EX_LOGIN;
    return EX_SETTINGS;
}

static json_t *to_json(const hf_finding *f)
{
    json_t *j = json_object();
    json_object_set_new(j, "grade", json_string(grades[f->grade]));
    json_object_set_new(j, "where", json_bytes(f->where, strlen(f->where)));
    json_object_set_new(j, "topic", json_string(f->topic));
    json_object_set_new(j, "text", json_bytes(f->text, strlen(f->text)));
    json_object_set_new(j, "advice",
                        f->advice ? json_bytes(f->advice, strlen(f->advice)) : json_null());
    return j;
}

static const char *field(const json_t *f, const char *name)
{
    const char *text = json_string_value(json_object_get(f, name));
    return text ? text : "";
}

static void print_line(struct report *r, const json_t *f)
{
    char text[TEXT_ESCAPED(700)];
    const char *where = field(f, "where"), *advice = field(f, "advice");
    const char *grade = field(f, "grade"), *words = field(f, "text");
    if (strcmp(r->where, where) != 0) {
        snprintf(r->where, sizeof r->where, "%s", where);
        printf("%s\n", text_escape(text, sizeof text, where, strlen(where)));
    }
    printf("  %-5s  %-11s  %s\n", grade, field(f, "topic"),
           text_escape(text, sizeof text, words, strlen(words)));
    if (advice[0] && strcmp(grade, grades[HF_GRADE_FINE]) != 0)
        printf("                      -> %s\n", advice);
}

static void each(const hf_finding *f, void *arg)
{
    struct report *r = arg;
    int code = code_of(f);
    r->count[f->grade]++;
    if (code && (!r->code || code < r->code))
        r->code = code;
    if (!r->findings)
        json_line(to_json(f));
    else if (r->o->output == OUT_JSON || !r->o->quiet || f->grade >= HF_GRADE_RISK)
        json_array_append_new(r->findings, to_json(f));
}

static void say_verdict(const struct report *r)
{
    int faults = r->count[HF_GRADE_FAULT], risks = r->count[HF_GRADE_RISK];
    if (!r->code)
        printf("all is well\n");
    else
        printf("%d fault%s, %d risk%s\n", faults, faults == 1 ? "" : "s", risks,
               risks == 1 ? "" : "s");
}

/* The verdict first, then what it is made of. */
static void print_all(struct report *r)
{
    size_t i;
    json_t *f;
    if (!r->o->quiet)
        say_verdict(r);
    json_array_foreach(r->findings, i, f)
        print_line(r, f);
}

static void sum_up(struct report *r)
{
    if (r->o->output == OUT_TABLE) {
        print_all(r);
    } else if (r->findings) {
        json_t *j = json_object();
        json_object_set(j, "findings", r->findings);
        json_object_set_new(j, "risks", json_integer(r->count[HF_GRADE_RISK]));
        json_object_set_new(j, "faults", json_integer(r->count[HF_GRADE_FAULT]));
        json_line(j);
    }
}

static int repair(const struct opts *o, const hf_client_opts *co)
{
    size_t repaired = 0;
    hf_error err;
    hf_err e = hf_doctor_repair_fence(o->url, co, &repaired, &err);
    if (e)
        return msg_failed(e, &err);
    if (repaired > 1)
        msg_note("%zu fencing counters were put aside, and new ones begun", repaired);
    else
        msg_note(repaired ? "the fencing counter was put aside, and a new one begun"
                          : "the fencing counter is usable: nothing was done");
    return 0;
}

int cmd_doctor(const struct cmd *cmd, struct opts *o, int argc, char **argv)
{
    hf_client_opts co = { .size = sizeof co, .prefix = o->prefix, .replicas = o->replicas };
    struct report r = { .o = o };
    hf_error err;
    (void)argv;
    if (argc)
        return usage_error(cmd, "it takes no names");
    int code = o->repair_fence ? repair(o, &co) : 0;
    if (code)
        return code;
    r.findings = o->output == OUT_JSONL ? NULL : json_array();
    hf_err e = hf_doctor_examine(o->url, &co, each, &r, &err);
    secrets_hide_env();
    if (e)
        code = msg_failed(e, &err);
    else
        sum_up(&r);
    json_decref(r.findings);
    return code ? code : r.code;
}
