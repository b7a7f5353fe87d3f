/* SPDX-License-Identifier: MIT
 * table.c - the line of a cell: on the screen, and in the files of a run.
 */
#include <errno.h>
#include <sys/file.h>

#include "faults/lib/matrix.h"

static int is_out(const struct run *r)
{
    return r->row->out && strchr(r->row->out, r->topo);
}

/* One line at the end of that file, whole even if several programs write. */
static void append(const char *name, const char *line)
{
    const char *dir = getenv("HF_FAULTS_OUT");
    if (!dir || !*dir)
        return;
    FILE *f = fopen(keep_text("%s/%s", dir, name), "a");
    CHECK(f);
    flock(fileno(f), LOCK_EX);
    CHECK(fprintf(f, "%s\n", line) > 0 && fclose(f) == 0);
}

static const char *as_text(const struct run *r, const struct verdict *v, const char *result)
{
    return keep_text("%-22s %c %4d %7zu %3zu %3zu%s %3zu %3zu %3zu %3zu %3zu %6lld %5zu %5zu %5ld "
                     "%5ld %5lld %8.1f %8.1f %8.1f %4lld %s", r->row->name, r->topo, r->injected,
                     v->grants, v->i1, v->i2, v->deposed > 0 ? "~" : is_out(r) ? "*" : " ", v->i3,
                     v->i4, v->i5, v->i6, v->i7, (long long)v->overlap_ms, v->lost, v->spurious,
                     v->refused, v->failed, (long long)v->late_ms, (double)v->x50_us / 1000,
                     (double)v->x99_us / 1000, (double)v->max_us / 1000, (long long)v->seconds,
                     result);
}

static const char *as_json(const struct run *r, const struct verdict *v, int wanted, int good)
{
    return keep_text("{\"row\":\"%s\",\"about\":\"%s\",\"topology\":\"%c\",\"seed\":%llu,"
                     "\"injected\":%d,\"wanted\":%d,\"grants\":%zu,\"calls\":%ld,\"i1\":%zu,"
                     "\"i2\":%zu,\"i2_in_model\":%s,\"i3\":%zu,\"i4\":%zu,\"i5\":%zu,\"i6\":%zu,"
                     "\"i7\":%zu,\"overlap_ms\":%lld,\"overlap_worst_ms\":%lld,\"lost\":%zu,"
                     "\"spurious\":%zu,\"stale_refused\":%ld,\"failed\":%ld,\"passed\":%zu,"
                     "\"overslept\":%zu,\"deposed\":%d,\"free_to_granted_ms\":[%.3f,%.3f,%.3f],"
                     "\"late_ms\":%lld,\"seconds\":%lld,\"good\":%s}",
                     r->row->name, r->row->about, r->topo, (unsigned long long)t_seed(),
                     r->injected, wanted, v->grants, v->calls, v->i1, v->i2,
                     is_out(r) ? "false" : "true", v->i3, v->i4, v->i5, v->i6, v->i7,
                     (long long)v->overlap_ms, (long long)v->worst_ms, v->lost, v->spurious,
                     v->refused, v->failed, v->passed, v->overslept, v->deposed,
                     (double)v->x50_us / 1000, (double)v->x99_us / 1000, (double)v->max_us / 1000,
                     (long long)v->late_ms, (long long)v->seconds, good ? "true" : "false");
}

static void tell_more(const struct run *r, const struct verdict *v)
{
    for (int e = 1; e < ERRORS; e++)
        if (atomic_load(&r->b->failed[e]))
            t_note("%ld calls failed with %s", atomic_load(&r->b->failed[e]),
                   hf_err_name((hf_err)-e));
    if (r->b->first_error[0])
        t_note("the first: %s", r->b->first_error);
    for (int l = 0; l < LOSSES; l++)
        if (atomic_load(&r->b->lost[l]))
            t_note("%ld lost: %s", atomic_load(&r->b->lost[l]),
                   l ? hf_loss_text((hf_loss)l) : "learned by the release");
    t_note("passed over at most %zu times; the latest call ended %lld ms after its limit; the "
           "file showed %zu holders and %zu that overslept", v->passed, (long long)v->late_ms,
           v->witness, v->overslept);
    if (v->deposed > 0)
        t_note("masters that lived were deposed %d times: the machine was too slow", v->deposed);
}

int table_line(struct run *r, const struct verdict *v)
{
    int wanted = r->quick ? r->row->quick : r->row->whole;
    /* Who deposes a master that only was slow may lose what was acknowledged; and until it knows
     * of that, it may give smaller numbers than the new one (docs/topologies.md). */
    int out = is_out(r) || v->deposed > 0;
    size_t i1 = v->i1 - (v->deposed > 0 ? v->disorder : 0);
    size_t bad = i1 + (out ? 0 : v->i2) + (v->deposed > 0 ? 0 : v->i3) + v->i4 + v->i5 + v->i6
                 + v->i7;
    int good = bad == 0 && r->injected >= wanted;
    const char *line = as_text(r, v, bad ? "VIOLATED" : good ? "ok" : "TOO FEW");
    t_note("row                    topo inj grants  I1  I2   I3  I4  I5  I6  I7 overl.  lost spur. "
           "stale fail.  late   x50 ms   x99 ms   max ms    s");
    t_note("%s", line);
    tell_more(r, v);
    append("table.txt", line);
    append("table.json", as_json(r, v, wanted, good));
    return good;
}
